#include "emit/cuda.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <utility>

#include <fmt/format.h>

namespace mithril::emit::testing {
namespace {

constexpr unsigned kThreads = 32;
constexpr size_t kMostParameters = 48;

struct Dim {
  unsigned x, y, z;
};
struct Launch {  // emulated_launch of tests/emulated_cuda/kernel.h
  Dim thread, block, block_size, grid;
  void (*meet)();
};

template <size_t... I>
void call(void* code, const uint64_t* p, std::index_sequence<I...> /*places*/) {
  reinterpret_cast<void (*)(decltype(uint64_t(I))...)>(code)(p[I]...);
}
template <size_t N>
void call_with(void* code, const uint64_t* p) {
  call(code, p, std::make_index_sequence<N>());
}
template <size_t... N>
constexpr auto table(std::index_sequence<N...> /*counts*/) {
  return std::array<void (*)(void*, const uint64_t*), sizeof...(N)>{call_with<N>...};
}
constexpr auto kCalls = table(std::make_index_sequence<kMostParameters>());

}  // namespace

CudaText::CudaText(const std::string& source, std::string& log) {
  char pattern[] = "/tmp/mithril_cuda_XXXXXX";
  folder_ = mkdtemp(pattern);
  std::ofstream(folder_ / "kernels.cc") << source;
  const std::string command = fmt::format(
      "g++ -std=c++17 -O1 -w -ffp-contract=off -shared -fPIC -include "
      "'{1}/../emulated_cuda/kernel.h' -o {0}/kernels.so {0}/kernels.cc -lm 2>{0}/errors",
      folder_.string(), MITHRIL_TEST_DATA);
  if (std::system(command.c_str()) != 0) {
    std::ifstream errors(folder_ / "errors");
    log = std::string(std::istreambuf_iterator<char>(errors), {});
    return;
  }
  library_ = dlopen((folder_ / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
}

CudaText::~CudaText() {
  if (library_ != nullptr) dlclose(library_);
  std::filesystem::remove_all(folder_);
}

bool CudaText::run(const std::string& kernel, int64_t begin, int64_t end,
                   const std::vector<std::vector<std::byte>*>& arrays) const {
  if (library_ == nullptr || arrays.size() + 2 >= kMostParameters) return false;
  void* const code = dlsym(library_, kernel.c_str());
  auto** const seen = static_cast<Launch**>(dlsym(library_, "emulated_cuda"));
  if (code == nullptr || seen == nullptr) return false;
  std::vector<uint64_t> parameters{static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
  for (auto* const array : arrays) parameters.push_back(reinterpret_cast<uint64_t>(array->data()));
  const auto blocks = static_cast<unsigned>((end - begin + kThreads - 1) / kThreads);
  Launch launch{{}, {}, {kThreads, 1, 1}, {blocks, 1, 1}, nullptr};
  *seen = &launch;
  for (launch.block.x = 0; launch.block.x < blocks; ++launch.block.x) {
    for (launch.thread.x = 0; launch.thread.x < kThreads; ++launch.thread.x) {
      kCalls[parameters.size()](code, parameters.data());
    }
  }
  return true;
}

}  // namespace mithril::emit::testing
