// An OpenCL device for tests, reached by the loader's library at run time.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace mithril::emit::testing {

class OpenClProgram;

class OpenCl {
 public:
  /// Null, and why, where this machine has no usable device.
  static std::unique_ptr<OpenCl> open(std::string& why);
  /// Null, and the compiler's words.
  std::unique_ptr<OpenClProgram> build(const std::string& source, std::string& log) const;
  ~OpenCl();

 private:
  friend class OpenClProgram;
  struct Api;
  OpenCl() = default;
  std::unique_ptr<Api> api_;
};

/// A built source.
class OpenClProgram {
 public:
  /// Runs one item for each index in [begin, end): the arguments are begin, end, then the arrays,
  /// which are copied to the device and back.
  bool run(const std::string& kernel, int64_t begin, int64_t end,
           const std::vector<std::vector<std::byte>*>& arrays) const;
  ~OpenClProgram();

 private:
  friend class OpenCl;
  OpenClProgram(const OpenCl& device, void* program) : device_(device), program_(program) {}
  const OpenCl& device_;
  void* program_;
};

}  // namespace mithril::emit::testing
