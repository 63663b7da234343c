#include "core/env.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace mithril::core {

namespace {

int parse_int(std::string_view text, int lowest, int highest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return 0;
  return value < lowest || value > highest ? 0 : value;
}

bool parse_bool(std::string_view text) { return text == "1" || text == "true" || text == "on"; }

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma != 0) items.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return items;
}

void parse_passes(std::string_view text, Env& env) {
  for (std::string_view item : split(text)) {
    const bool off = item.front() == '-';
    if (off || item.front() == '+') item.remove_prefix(1);
    if (!item.empty()) env.passes.push_back({std::string(item), !off});
  }
}

bool is_level(std::string_view text) {
  return text == "debug" || text == "info" || text == "warning" || text == "error";
}

void parse_log(std::string_view text, Env& env) {
  for (const std::string_view item : split(text)) {
    const size_t colon = item.find(':');
    if (colon == 0) continue;
    if (colon != std::string_view::npos) {
      env.log.push_back({std::string(item.substr(0, colon)), std::string(item.substr(colon + 1))});
    } else if (is_level(item)) {
      env.log.push_back({"", std::string(item)});
    } else {
      env.log.push_back({std::string(item), "info"});
    }
  }
}

struct Row {
  EnvVariable variable;
  void (*parse)(std::string_view, Env&);
};

constexpr std::array kRows = {
    Row{{"MITHRIL_DEBUG", "1..5",
         "to stderr: 1 chosen backend and time per stage; 2 each pass, changed or not; 3 graph "
         "after "
         "changed passes; 4 generated source; 5 plan, buffers, every rewrite"},
        [](std::string_view text, Env& env) { env.debug = parse_int(text, 1, 5); }},
    Row{{"MITHRIL_DUMP", "folder",
         "writes into this folder: the graph after each pass (.ir, .dot), plan.txt, generated "
         "source; "
         "the second compile of a process into 2/, and so on"},
        [](std::string_view text, Env& env) { env.dump = text; }},
    Row{{"MITHRIL_PASSES", "-fuse,…", "switch passes off (-) or on (+) by name"}, parse_passes},
    Row{{"MITHRIL_VERIFY", "1", "check the graph after every pass (always on in debug builds)"},
        [](std::string_view text, Env& env) { env.verify = parse_bool(text); }},
    Row{{"MITHRIL_PROFILE", "1",
         "to stderr when the process ends: table of kernels with count, time, bytes"},
        [](std::string_view text, Env& env) { env.profile = parse_bool(text); }},
    Row{{"MITHRIL_CPU_ISA", "generic | avx2 | avx512",
         "force a code path, without what goes beyond the set (AVX512-BF16, AMX)"},
        [](std::string_view text, Env& env) { env.cpu_isa = text; }},
    Row{{"MITHRIL_JIT", "0",
         "no machine code is made of loops: the interpreter runs them, to the same bits"},
        [](std::string_view text, Env& env) { env.jit = text != "0"; }},
    Row{{"MITHRIL_THREADS", "1..1024", "threads of the CPU backend, the calling one included"},
        [](std::string_view text, Env& env) { env.threads = parse_int(text, 1, 1024); }},
    Row{{"MITHRIL_POISON", "1", "fill arenas with NaN before each run"},
        [](std::string_view text, Env& env) { env.poison = parse_bool(text); }},
    Row{{"MITHRIL_LOG", "topic:level,… | level",
         "shows records of the `mithril` loggers: passes, memory, codegen, recompile, kernels; a "
         "level alone is for all of them"},
        parse_log},
    Row{{"MITHRIL_CACHE_DIR", "folder",
         "where the C and CUDA backends keep what they compiled, and ml.tune what it found; "
         "~/.cache/mithril unless set"},
        [](std::string_view text, Env& env) { env.cache_dir = text; }},
    Row{{"MITHRIL_GGML_LIB", "path", "which libggml to open in place of that of ggml-python"},
        [](std::string_view text, Env& env) { env.ggml_lib = text; }},
    Row{{"MITHRIL_CUDA_LIB", "path", "which driver of CUDA to open in place of libcuda.so.1"},
        [](std::string_view text, Env& env) { env.cuda_lib = text; }},
    Row{{"MITHRIL_NVRTC_LIB", "path",
         "which NVRTC to open in place of that of nvidia-cuda-nvrtc or the system"},
        [](std::string_view text, Env& env) { env.nvrtc_lib = text; }},
    Row{{"MITHRIL_CUBLASLT_LIB", "path",
         "which cuBLASLt to open in place of that of nvidia-cublas or the system; 0: none"},
        [](std::string_view text, Env& env) { env.cublaslt_lib = text; }},
    Row{{"MITHRIL_CUDNN_LIB", "path",
         "which cuDNN to open in place of that of nvidia-cudnn or the system; 0: none"},
        [](std::string_view text, Env& env) { env.cudnn_lib = text; }},
    Row{{"MITHRIL_CUDA_GRAPHS", "0", "steps of a plan are not launched as one graph of CUDA"},
        [](std::string_view text, Env& env) { env.cuda_graphs = text != "0"; }},
    Row{{"MITHRIL_DISABLE_PLUGINS", "1", "ignore entry points"},
        [](std::string_view text, Env& env) { env.disable_plugins = parse_bool(text); }},
    Row{{"MITHRIL_FULL_TRACEBACK", "1", "show internal frames"},
        [](std::string_view text, Env& env) { env.full_traceback = parse_bool(text); }},
};

constexpr auto kVariables = [] {
  std::array<EnvVariable, kRows.size()> out;
  for (size_t i = 0; i < kRows.size(); ++i) out[i] = kRows[i].variable;
  return out;
}();

}  // namespace

std::span<const EnvVariable> env_table() { return kVariables; }

Env parse_env(const std::function<const char*(const char*)>& lookup) {
  Env env;
  for (const Row& row : kRows) {
    const char* text = lookup(row.variable.name.data());  // literals: they end with NUL
    if (text != nullptr) row.parse(text, env);
  }
  return env;
}

const Env& env() {
  static const Env parsed = [] {
    Env out = parse_env([](const char* name) { return std::getenv(name); });
#ifndef NDEBUG
    out.verify = true;
#endif
    return out;
  }();
  return parsed;
}

bool is_set_to_nothing(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text == '\0';
}

}  // namespace mithril::core
