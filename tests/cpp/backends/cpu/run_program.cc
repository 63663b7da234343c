#include "backends/cpu/run_program.h"

#include <cmath>
#include <cstdio>
#include <unistd.h>

#include <sys/mman.h>

#include "backends/cpu/jit/compile.h"
#include "core/checked.h"
#include "tile/convert.h"
#include "tile/half.h"

namespace mithril::cpu::testing {
namespace {

/// A copy whose last byte ends a page; both neighbours of the mapping cannot be touched.
class Guarded {
 public:
  explicit Guarded(const Bytes& bytes) : size_(bytes.size()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (size_ + page - 1) / page * page;
    mapped_ = inner_ + 2 * page;
    void* at = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<char*>(at);
    if (inner_ > 0) mprotect(base_ + page, inner_, PROT_READ | PROT_WRITE);
    data_ = base_ + page + inner_ - size_;
    if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  char* data() const { return data_; }
  Bytes bytes() const {
    const auto* from = reinterpret_cast<const std::byte*>(data_);
    return Bytes(from, from + size_);
  }

 private:
  size_t size_, inner_ = 0, mapped_ = 0;
  char* base_ = nullptr;
  char* data_ = nullptr;
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};

bool is_nan(core::DType dtype, const std::byte* at) {
  switch (dtype) {
    case core::DType::kFloat16:
    case core::DType::kBFloat16: {
      uint16_t h;
      std::memcpy(&h, at, 2);
      return std::isnan(dtype == core::DType::kFloat16 ? tile::half_to_float(h)
                                                       : tile::bfloat_to_float(h));
    }
    case core::DType::kFloat32: {
      float f;
      std::memcpy(&f, at, 4);
      return std::isnan(f);
    }
    case core::DType::kFloat64: {
      double d;
      std::memcpy(&d, at, 8);
      return std::isnan(d);
    }
    default: return false;
  }
}

}  // namespace

std::string name(Engine engine) {
  return std::string(cpu::name(engine.isa)) + (engine.compiled ? " compiled" : "");
}

std::vector<Engine> engines() {
  static bool told = false;
  std::vector<Engine> out;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (supports(isa)) {
      out.emplace_back(isa);
      if (jit::is_on(isa)) out.emplace_back(isa, true);
    } else if (!told) {
      std::printf("[  SKIPPED ] %s: this machine does not have it\n",
                  std::string(cpu::name(isa)).c_str());
    }
  }
  told = true;
  return out;
}

Bytes encode(core::DType dtype, const std::vector<double>& values) {
  Bytes out;
  for (const double x : values) {
    const uint64_t bits = tile::bits_of_double(dtype, x);
    const auto* from = reinterpret_cast<const std::byte*>(&bits);
    out.insert(out.end(), from, from + core::size_of(dtype));
  }
  return out;
}

std::vector<double> hard_sums(int64_t n) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto fraction = [](int64_t r) { return std::fmod(static_cast<double>(r) * 0.618034, 1); };
  std::vector<double> out;
  for (int64_t row = 0; row < kHardSums; ++row) {
    for (int64_t r = 0; r < n; ++r) {
      const double sign = r / 64 % 2 == 0 ? 1 : -1;
      switch (row) {
        case 0: out.push_back(-0.0); break;
        case 1: out.push_back(r % 64 == 0 ? 1e8 * sign : fraction(r)); break;
        case 2: out.push_back(0.5 + fraction(r)); break;
        case 3: out.push_back(r == n / 2 ? inf : fraction(r)); break;
        case 4: out.push_back(r == 0 ? inf : r == n - 1 ? -inf : fraction(r)); break;
        default: out.push_back(r % 64 == 0 ? 3e38 * (r / 128 % 2 == 0 ? 1 : -1) : 0); break;
      }
    }
  }
  return out;
}

int64_t Domain::kept_points() const { return *core::element_count(kept); }
int64_t Domain::reduced_points() const { return *core::element_count(reduced); }

size_t elements(const Domain& domain, tile::Level level) {
  if (level == tile::Level::kUniform) return 1;
  const int64_t points = level == tile::Level::kRow ? 1 : domain.reduced_points();
  return static_cast<size_t>(domain.kept_points() * points);
}

Strides dense(const Domain& domain, tile::Level level) {
  Strides out{domain.kept, domain.reduced};
  const bool row = level == tile::Level::kRow;
  int64_t step = level == tile::Level::kUniform ? 0 : 1;
  for (size_t d = domain.reduced.size(); d-- > 0; step *= row ? 1 : domain.reduced[d]) {
    out.reduced[d] = row ? 0 : step;
  }
  for (size_t d = domain.kept.size(); d-- > 0; step *= domain.kept[d]) out.kept[d] = step;
  return out;
}

namespace {

std::vector<Strides> dense_inputs(const tile::Program& program, const Domain& domain) {
  std::vector<Strides> out;
  for (uint32_t k = 0; k < program.inputs.size(); ++k) {
    out.push_back(dense(domain, input_level(program, k)));
  }
  return out;
}

/// Operands of a program in memory that faults beyond its ends.
struct Operands {
  std::vector<Strides> strides;
  std::vector<std::unique_ptr<Guarded>> arrays;
  std::vector<void*> buffers;
  std::vector<const Guarded*> outputs;

  Operands(const tile::Program& program, const Domain& domain, const std::vector<Bytes>& inputs,
           std::vector<Strides> input_strides, const std::vector<int64_t>& base,
           const std::vector<int>& on)
      : strides(std::move(input_strides)) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      arrays.push_back(std::make_unique<Guarded>(inputs[k]));
      const auto size = static_cast<int64_t>(core::size_of(program.inputs[k]));
      buffers.push_back(arrays.back()->data() + base[k] * size);
    }
    for (uint32_t k = 0; k < program.outputs.size(); ++k) {
      const tile::Level level = output_level(program, k);
      strides.push_back(dense(domain, level));
      if (on[k] < 0) {
        const size_t size = elements(domain, level) * core::size_of(program.outputs[k]);
        arrays.push_back(std::make_unique<Guarded>(Bytes(size, std::byte{0xee})));
      }
      outputs.push_back(on[k] < 0 ? arrays.back().get() : arrays[static_cast<size_t>(on[k])].get());
      buffers.push_back(outputs.back()->data());
    }
  }
};

std::vector<Bytes> run_on(const tile::Program& program, Engine engine, const Domain& domain,
                          const Operands& operands, const std::vector<double>& scalars) {
  const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
  std::vector<OperandStrides> strides;
  for (const Strides& s : operands.strides) strides.push_back({s.kept, s.reduced});
  const LoopCall loop = make_loop(*kernel, domain.kept, domain.reduced, strides);
  const size_t scratch_bytes = (loop.scratch_bytes + 63) / 64 * 64;
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, scratch_bytes + 64));
  std::memset(scratch.get(), 0xee, scratch_bytes);
  plan::ErrorSlot error;
  plan::KernelArgs args{operands.buffers.data(),
                        loop.params.data(),
                        scalars.data(),
                        kernel.get(),
                        scratch.get(),
                        0,
                        &error,
                        nullptr};
  const FloatEnvironment environment;
  for (int64_t unit = loop.units; unit-- > 0;) kernel->function()(args, unit, unit + 1);
  std::vector<Bytes> out;
  for (const Guarded* array : operands.outputs) out.push_back(array->bytes());
  return out;
}

}  // namespace

std::vector<Bytes> run(const tile::Program& program, Engine engine, const Domain& domain,
                       const std::vector<Bytes>& inputs, const std::vector<double>& scalars) {
  return run_in_place(program, engine, domain, inputs, std::vector<int>(program.outputs.size(), -1),
                      scalars);
}

std::vector<Bytes> run_in_place(const tile::Program& program, Engine engine, const Domain& domain,
                                const std::vector<Bytes>& inputs, const std::vector<int>& on,
                                const std::vector<double>& scalars) {
  const std::vector<int64_t> base(inputs.size(), 0);
  const Operands operands(program, domain, inputs, dense_inputs(program, domain), base, on);
  return run_on(program, engine, domain, operands, scalars);
}

std::vector<Bytes> run_strided(const tile::Program& program, Engine engine, const Domain& domain,
                               const std::vector<Bytes>& inputs,
                               const std::vector<Strides>& strides,
                               const std::vector<int64_t>& base,
                               const std::vector<double>& scalars) {
  const std::vector<int> on(program.outputs.size(), -1);
  return run_on(program, engine, domain, Operands(program, domain, inputs, strides, base, on),
                scalars);
}

int64_t first_difference(core::DType dtype, const Bytes& a, const Bytes& b) {
  const size_t size = core::size_of(dtype);
  if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()) / size);
  for (size_t at = 0; at < a.size(); at += size) {
    if (std::memcmp(&a[at], &b[at], size) == 0) continue;
    if (is_nan(dtype, &a[at]) && is_nan(dtype, &b[at])) continue;
    return static_cast<int64_t>(at / size);
  }
  return -1;
}

}  // namespace mithril::cpu::testing
