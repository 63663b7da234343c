// A stand-in for libnvrtc: g++ compiles the kernels, and the "machine code" is a shared object. A
// test double, no part of mithril. Flags that the real one lacks are refused.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

enum Status {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kFailed = 6
};
constexpr int kArchitectures[] = {75, 80, 90, 100};
constexpr const char* kOptions[] = {"--std=c++17", "--fmad=false", "--prec-div=true",
                                    "--prec-sqrt=true", "--ftz=false"};

struct Program {
  std::string text, log, code;
};

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// ptxas: "Kernel parameters … up to 4,096 bytes" (CUDA C++ Programming Guide, before CUDA 12.1 and
// before sm_70; all of ours have 8 bytes).
constexpr size_t kMostParameterBytes = 4096;

// A function that the driver calls each kernel by, and how many parameters that has. `log` gets
// what ptxas says of one that has too many.
std::string calls(const std::string& text, std::string& log) {
  std::string out;
  const std::string mark = "extern \"C\" __global__ void";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    at += mark.size();
    const size_t open = text.find('(', at);
    size_t start = at, list = open;
    if (text.compare(text.find_first_not_of(' ', at), 17, "__launch_bounds__") == 0) {
      start = text.find(')', open) + 1;
      list = text.find('(', start);
    }
    const size_t close = text.find(')', list);
    std::string name = text.substr(start, list - start);
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    int count = close == list + 1 ? 0 : 1;
    for (size_t i = list; i < close; ++i) count += text[i] == ',' ? 1 : 0;
    const size_t bytes = 8 * static_cast<size_t>(count);
    if (bytes > kMostParameterBytes) {
      log += "ptxas error: formal parameter space overflowed (" + std::to_string(bytes) +
             " bytes required, max 4096 bytes allowed) in function " + name + "\n";
    }
    out += "EMULATED_CALL(" + name + ", " + std::to_string(count) + ")\n";
    at = close;
  }
  return out;
}

bool is_known(const std::string& option) {
  for (const char* known : kOptions) {
    if (option == known) return true;
  }
  for (const int architecture : kArchitectures) {
    if (option == "--gpu-architecture=sm_" + std::to_string(architecture)) return true;
    if (option == "--gpu-architecture=compute_" + std::to_string(architecture)) return true;
  }
  return false;
}

int compile(Program& program) {
  const std::string entries = calls(program.text, program.log);
  if (!program.log.empty()) return kFailed;
  char folder[] = "/tmp/emulated-cuda-XXXXXX";
  if (mkdtemp(folder) == nullptr) return kFailed;
  const std::string base = folder, source = base + "/kernels.cc", object = base + "/kernels.so",
                    log = base + "/log";
  std::ofstream(source, std::ios::binary) << program.text << entries;
  const std::string command =
      "g++ -std=c++17 -O1 -w -fPIC -shared -ffp-contract=off "
      "-fno-strict-aliasing -fvisibility=hidden -include '" EMULATED_KERNEL_H "' '" +
      source + "' -o '" + object + "' -lm >'" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  program.log = file_text(log);
  if (status == 0) program.code = file_text(object);
  for (const std::string& path : {source, object, log}) unlink(path.c_str());
  rmdir(folder);
  return status == 0 ? kSuccess : kFailed;
}

int give(const std::string& text, char* to) {
  if (to == nullptr) return kInvalidInput;
  std::memcpy(to, text.data(), text.size());
  return kSuccess;
}

Program* of(void* program) { return static_cast<Program*>(program); }

}  // namespace

extern "C" {

// The number of a build stands in it: what another one compiled is not found in caches.
int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = EMULATED_BUILD;
  return kSuccess;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = std::size(kArchitectures);
  return kSuccess;
}
int nvrtcGetSupportedArchs(int* to) {
  for (const int architecture : kArchitectures) *to++ = architecture;
  return kSuccess;
}
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*,
                       const char* const*) {
  if (program == nullptr || text == nullptr) return kInvalidInput;
  *program = new Program{text, {}, {}};
  return kSuccess;
}
int nvrtcDestroyProgram(void** program) {
  if (program == nullptr || *program == nullptr) return kInvalidProgram;
  delete of(*program);
  *program = nullptr;
  return kSuccess;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  if (program == nullptr) return kInvalidProgram;
  for (int i = 0; i < count; ++i) {
    if (!is_known(options[i])) return kInvalidOption;
  }
  return compile(*of(program));
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = of(program)->log.size() + 1;
  return kSuccess;
}
int nvrtcGetProgramLog(void* program, char* to) {
  std::strcpy(to, of(program)->log.c_str());
  return kSuccess;
}
int nvrtcGetPTXSize(void* program, size_t* size) {
  *size = of(program)->code.size();
  return *size == 0 ? kInvalidProgram : kSuccess;
}
int nvrtcGetPTX(void* program, char* to) { return give(of(program)->code, to); }
int nvrtcGetCUBINSize(void* program, size_t* size) { return nvrtcGetPTXSize(program, size); }
int nvrtcGetCUBIN(void* program, char* to) { return nvrtcGetPTX(program, to); }
}
