// cuBLASLt: products of matrices by NVIDIA's library, opened at run time where it is installed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/api.h"
#include "backends/device/driver.h"

namespace mithril::cuda {

/// The library as one device uses it. Whoever calls has made the device's context the current one.
class Cublaslt {
 public:
  /// The first of `libraries` that can be opened and is no newer than `newest` (12080 is 12.8, as
  /// drivers say it).
  static core::Result<Cublaslt> open(const std::vector<std::string>& libraries, int newest);

  /// "cuBLASLt 12.9".
  std::string name() const;

  /// Memory that multiply() may use, all products after each other.
  static constexpr int64_t kWorkspace = 32 << 20;

  core::Result<std::unique_ptr<const device::PreparedProduct>> prepare(
      const plan::LibraryProduct& product) const;
  /// Bytes of the workspace that the product needs.
  static int64_t workspace_of(const device::PreparedProduct& product);

  /// Says where the operands of a product lie; `bias` and `workspace` where they are needed.
  struct Places {
    cu_pointer a = 0, b = 0, c = 0, bias = 0, workspace = 0;
  };
  core::Status multiply(const device::PreparedProduct& product, const Places& at,
                        cu_stream stream) const;

 private:
  class Product;

  const CublasltFunctions* functions_ = nullptr;
  size_t version_ = 0;
  lt_handle handle_ = nullptr;  // as long as the process
};

}  // namespace mithril::cuda
