// CUDA C, compiled as C++ with the header of the emulator of CUDA: a test double of a device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mithril::emit::testing {

/// A source whose kernels have no barriers; its threads run one after the other.
class CudaText {
 public:
  /// `log` gets the compiler's words where it does not compile.
  CudaText(const std::string& source, std::string& log);
  ~CudaText();
  CudaText(const CudaText&) = delete;
  CudaText& operator=(const CudaText&) = delete;
  /// Runs a thread for each index in [begin, end), and some more: the arguments are begin, end,
  /// then the arrays.
  bool run(const std::string& kernel, int64_t begin, int64_t end,
           const std::vector<std::vector<std::byte>*>& arrays) const;

 private:
  std::filesystem::path folder_;
  void* library_ = nullptr;
};

}  // namespace mithril::emit::testing
