// The debug variables: the only place that reads the environment.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mithril::core {

/// One row of the table of variables, as docs/env_vars.md prints it.
struct EnvVariable {
  std::string_view name;     // "MITHRIL_DEBUG"
  std::string_view values;   // "1..5"
  std::string_view meaning;  // what setting it does
};

/// The variables, parsed. Text that cannot be read counts as not set.
struct Env {
  struct Switch {
    std::string name;
    bool on = true;
  };
  struct LogLevel {
    std::string topic;  // "" is every topic
    std::string level;
  };
  int debug = 0;               // 0 quiet … 5 everything
  std::string dump;            // folder, or empty
  std::vector<Switch> passes;  // in the order written
  bool verify = false;         // also on in debug builds
  bool profile = false;
  std::string cpu_isa;  // "generic", "avx2", "avx512", or empty: the best there is
  bool jit = true;      // compile loops to machine code
  int threads = 0;      // 0: one for each processor of the process
  bool poison = false;
  std::vector<LogLevel> log;
  std::string cache_dir;  // folder of compiled C, or empty: the user's
  std::string ggml_lib;   // path, or empty
  std::string cuda_lib, nvrtc_lib, cublaslt_lib, cudnn_lib;  // paths, or empty
  bool cuda_graphs = true;  // record the steps of a plan, to launch them as one
  bool disable_plugins = false;
  bool full_traceback = false;
};

/// Every variable there is, in the order of the documentation.
std::span<const EnvVariable> env_table();

/// Parses what `lookup` finds under each name (null: not set). For tests; `env()` calls it.
Env parse_env(const std::function<const char*(const char*)>& lookup);

/// The process's variables, read at the first call and never again.
const Env& env();

/// Tells whether a variable of another library is set to an empty text now.
bool is_set_to_nothing(const char* name);

}  // namespace mithril::core
