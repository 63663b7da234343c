// cuDNN: convolutions and their gradients by NVIDIA's library, opened at run time where it is
// installed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/api.h"
#include "backends/cuda/library_call.h"

namespace mithril::cuda {

/// The library as one device uses it. Whoever calls has made the device's context the current one.
class Cudnn {
 public:
  /// The first of `libraries` that can be opened and started, and is of no newer CUDA than `newest`
  /// (12080 is 12.8, as drivers say it). Starting takes memory of the device, and time.
  static core::Result<Cudnn> open(const std::vector<std::string>& libraries, int newest);

  /// "cuDNN 9.10".
  std::string name() const;

  /// Takes the algorithm that the library expects to be the fastest, of those that are admitted and
  /// whose workspace has at most `most_workspace` bytes and can be taken. UnsupportedError where
  /// there is none.
  core::Result<LibraryCallPtr> prepare(const plan::LibraryConv2d& convolution,
                                       int64_t most_workspace,
                                       const TakeWorkspace& take_workspace) const;

 private:
  class Convolution;
  struct Handle;
  static core::Result<Cudnn> open(const std::string& path, int newest);

  const CudnnFunctions* functions_ = nullptr;
  std::shared_ptr<Handle> handle_;  // as long as the process
};

}  // namespace mithril::cuda
