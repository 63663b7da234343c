#include "backends/cuda/compiler.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace mithril::cuda {
namespace {

constexpr const char* kInstall = "pip install nvidia-cuda-nvrtc-cu12 (CUDA 13: nvidia-cuda-nvrtc)";
constexpr size_t kLongestLog = 4000;
// IEEE arithmetic: sums and products are rounded apart, quotients and roots correctly.
constexpr const char* kFlags[] = {"--std=c++17", "--fmad=false", "--prec-div=true",
                                  "--prec-sqrt=true", "--ftz=false"};

/// Owns a program while it is compiled.
class Source {
 public:
  static core::Result<Source> make(const NvrtcFunctions& f, const std::string& text) {
    nvrtc_program program = nullptr;
    MITHRIL_RETURN_IF_ERROR(call(f.create, "nvrtcCreateProgram", &program, text.c_str(),
                                 "mithril.cu", 0, nullptr, nullptr));
    return Source(f, program);
  }
  Source(Source&& other) noexcept
      : f_(other.f_), program_(std::exchange(other.program_, nullptr)) {}
  Source& operator=(Source&&) = delete;
  ~Source() {
    if (program_ == nullptr) return;
    device::give_back(f_.destroy, "nvrtcDestroyProgram", &program_);
    device::count_object(-1);
  }

  core::Status compile(const std::string& architecture) const {
    const std::string target = "--gpu-architecture=" + architecture;
    std::vector<const char*> options(std::begin(kFlags), std::end(kFlags));
    options.push_back(target.c_str());
    core::Status status = call(f_.compile, "nvrtcCompileProgram", program_,
                               static_cast<int>(options.size()), options.data());
    if (status.ok()) return status;
    status.error().message += fmt::format(" for {}", architecture);
    const std::string log = this->log();
    if (!log.empty()) status.error().message += ":\n" + log;
    return status;
  }

  core::Result<std::string> code(bool is_ptx) const {
    size_t size = 0;
    MITHRIL_RETURN_IF_ERROR(is_ptx ? call(f_.ptx_size, "nvrtcGetPTXSize", program_, &size)
                                   : call(f_.cubin_size, "nvrtcGetCUBINSize", program_, &size));
    std::string out(size, '\0');
    MITHRIL_RETURN_IF_ERROR(is_ptx ? call(f_.ptx, "nvrtcGetPTX", program_, out.data())
                                   : call(f_.cubin, "nvrtcGetCUBIN", program_, out.data()));
    return out;
  }

 private:
  Source(const NvrtcFunctions& f, nvrtc_program program) : f_(f), program_(program) {
    device::count_object(1);
  }

  std::string log() const {
    size_t size = 0;
    if (f_.log_size(program_, &size) != kSuccess) return {};
    std::string out(size, '\0');
    if (f_.log(program_, out.data()) != kSuccess) return {};
    out.resize(std::min({out.find('\0'), out.size(), kLongestLog}));
    return out;
  }

  const NvrtcFunctions& f_;
  nvrtc_program program_;
};

}  // namespace

core::Result<Compiler> Compiler::open(const std::vector<std::string>& libraries, int newest) {
  std::vector<std::string> reasons;
  for (const std::string& path : libraries) {
    Compiler out;
    std::string why;
    out.path_ = path;
    out.functions_ = open_nvrtc(path, why);
    if (out.functions_ == nullptr) {
      reasons.push_back(why);
      continue;
    }
    const NvrtcFunctions& f = *out.functions_;
    MITHRIL_RETURN_IF_ERROR(call(f.version, "nvrtcVersion", &out.major_, &out.minor_));
    if (newest > 0 && out.major_ > newest / 1000) {
      reasons.push_back(
          fmt::format("{} is of CUDA {}, the driver of CUDA {}", path, out.major_, newest / 1000));
      continue;
    }
    int count = 0;
    MITHRIL_RETURN_IF_ERROR(call(f.arch_count, "nvrtcGetNumSupportedArchs", &count));
    out.architectures_.resize(static_cast<size_t>(std::max(count, 0)));
    MITHRIL_RETURN_IF_ERROR(call(f.archs, "nvrtcGetSupportedArchs", out.architectures_.data()));
    std::sort(out.architectures_.begin(), out.architectures_.end());
    return out;
  }
  core::Error error =
      core::fail(core::ErrorKind::kDevice, core::Code::kDevice,
                 "CUDA: no NVRTC, which compiles kernels: {}", fmt::join(reasons, "; "));
  error.hint = kInstall;
  return error;
}

int Compiler::nearest(int architecture) const {
  const auto above = std::upper_bound(architectures_.begin(), architectures_.end(), architecture);
  return above == architectures_.begin() ? architecture : *(above - 1);
}

core::Result<std::string> Compiler::compile(const std::string& text, int architecture) const {
  return compiled(text, architecture, nearest(architecture) != architecture);
}

core::Result<std::string> Compiler::compile_ptx(const std::string& text, int architecture) const {
  return compiled(text, architecture, true);
}

core::Result<std::string> Compiler::compiled(const std::string& text, int architecture,
                                             bool to_ptx) const {
  MITHRIL_ASSIGN(const Source source, Source::make(*functions_, text));
  MITHRIL_RETURN_IF_ERROR(
      source.compile(fmt::format("{}_{}", to_ptx ? "compute" : "sm", nearest(architecture))));
  return source.code(to_ptx);
}

std::string Compiler::version() const { return fmt::format("{}.{}", major_, minor_); }

std::string Compiler::identity(int architecture) const {
  return fmt::format("NVRTC {} {} sm_{} {}", version(), path_, architecture,
                     fmt::join(kFlags, " "));
}

}  // namespace mithril::cuda
