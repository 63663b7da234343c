// NVRTC: CUDA C in, machine code or PTX for one architecture out. Needs no device.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/api.h"

namespace mithril::cuda {

class Compiler {
 public:
  /// The first of `libraries` that can be opened and is no newer than `newest` (12080 is 12.8, as
  /// drivers say it; 0: any).
  static core::Result<Compiler> open(const std::vector<std::string>& libraries, int newest);

  /// Compiles for an architecture such as 90, or for the nearest older one that the compiler knows:
  /// machine code where it knows it, else PTX that ends with NUL. An error has the compiler's
  /// words.
  core::Result<std::string> compile(const std::string& text, int architecture) const;
  /// The same as PTX in any case.
  core::Result<std::string> compile_ptx(const std::string& text, int architecture) const;

  /// Names what the result of a text depends on: version, library, architecture and flags.
  std::string identity(int architecture) const;
  const std::string& path() const { return path_; }
  /// "13.5".
  std::string version() const;

 private:
  core::Result<std::string> compiled(const std::string& text, int architecture, bool to_ptx) const;
  int nearest(int architecture) const;

  const NvrtcFunctions* functions_ = nullptr;
  std::string path_;
  int major_ = 0, minor_ = 0;
  std::vector<int> architectures_;  // ascending
};

}  // namespace mithril::cuda
