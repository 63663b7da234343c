// Runs a tile program through the interpreter on arrays of bytes, for tests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/loops/interpreter.h"
#include "backends/cpu/machine/float_env.h"
#include "tile/program.h"

namespace mithril::cpu::testing {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// Each number as an element of `dtype`, as casts make it.
Bytes encode(core::DType dtype, const std::vector<double>& values);

/// Rows of n numbers that are hard to sum: much is rounded away, signs of zeros, infinities, sums
/// above the largest float32. Sizes on both sides of the blocks of either order.
inline constexpr int64_t kHardSums = 6;
inline constexpr int64_t kHardSizes[] = {1, 64, 65, 200, 4096, 4097, 13000};
std::vector<double> hard_sums(int64_t n);

/// What runs a program: the interpreter of an instruction set, or machine code for it.
struct Engine {
  Engine(Isa set, bool is_compiled = false) : isa(set), compiled(is_compiled) {}
  Isa isa;
  bool compiled;
};
std::string name(Engine engine);
/// Every instruction set that this machine has, interpreted and compiled; says what it leaves out.
std::vector<Engine> engines();

struct Domain {
  std::vector<int64_t> kept, reduced;
  int64_t kept_points() const;
  int64_t reduced_points() const;
};

/// Row-major strides of a full (or row) operand over the domain.
struct Strides {
  std::vector<int64_t> kept, reduced;
};
Strides dense(const Domain& domain, tile::Level level);
/// How many elements it has.
size_t elements(const Domain& domain, tile::Level level);

/// Dense inputs and outputs, units run one by one in falling order. Reads and writes outside the
/// arrays fault (guard pages).
std::vector<Bytes> run(const tile::Program& program, Engine engine, const Domain& domain,
                       const std::vector<Bytes>& inputs, const std::vector<double>& scalars = {});

/// The same with output k in the memory of input `on[k]`; -1: in its own.
std::vector<Bytes> run_in_place(const tile::Program& program, Engine engine, const Domain& domain,
                                const std::vector<Bytes>& inputs, const std::vector<int>& on,
                                const std::vector<double>& scalars = {});

/// As run() with inputs at given strides; `base[k]` is the index of element 0 in inputs[k].
std::vector<Bytes> run_strided(const tile::Program& program, Engine engine, const Domain& domain,
                               const std::vector<Bytes>& inputs,
                               const std::vector<Strides>& strides,
                               const std::vector<int64_t>& base,
                               const std::vector<double>& scalars = {});

/// Equal bytes, all NaNs of a float type counting as equal; -1, or the first differing element.
int64_t first_difference(core::DType dtype, const Bytes& a, const Bytes& b);

}  // namespace mithril::cpu::testing
