// cuBLASLt: products of matrices by NVIDIA's library, opened at run time where it is installed.
#pragma once
#include <string>
#include <vector>

#include "backends/cuda/api.h"
#include "backends/cuda/library_call.h"

namespace mithril::cuda {

/// The library as one device uses it. Whoever calls has made the device's context the current one.
class Cublaslt {
 public:
  /// The first of `libraries` that can be opened and is no newer than `newest` (12080 is 12.8, as
  /// drivers say it).
  static core::Result<Cublaslt> open(const std::vector<std::string>& libraries, int newest);

  /// "cuBLASLt 12.9".
  std::string name() const;

  /// Memory that all products after each other work in, where one needs some.
  static constexpr int64_t kWorkspace = 32 << 20;

  core::Result<LibraryCallPtr> prepare(const plan::LibraryMatmul& product,
                                       const TakeWorkspace& take_workspace) const;

 private:
  class Product;
  static core::Result<Cublaslt> open(const std::string& path, int newest);

  const CublasltFunctions* functions_ = nullptr;
  size_t version_ = 0;
  lt_handle handle_ = nullptr;  // as long as the process
};

}  // namespace mithril::cuda
