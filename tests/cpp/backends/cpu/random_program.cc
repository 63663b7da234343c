#include "backends/cpu/random_program.h"

#include <cmath>
#include <limits>

namespace mithril::cpu::testing {
namespace {

using core::DType;
using tile::Builder;
using tile::Opcode;
using tile::Reg;

class Writer {
 public:
  Writer(std::mt19937& rng, const RandomShape& shape) : rng_(rng), shape_(shape) {
    types_ = {DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kInt32, DType::kBool};
    if (shape.wide) types_.insert(types_.end(), {DType::kFloat64, DType::kInt64});
    if (!shape.halves) return;
    types_.insert(types_.end(),
                  {DType::kUInt8, DType::kInt8, DType::kInt16, DType::kFloat16, DType::kBFloat16});
  }

  tile::Program run() {
    const size_t loads = 2 + rng_() % 3;
    for (size_t k = 0; k < loads; ++k) add(t_.load(type()));
    if (shape_.reducing && rng_() % 2 == 0) add(t_.load_row(type()));
    if (rng_() % 3 == 0) add(t_.load_uniform(type()));
    if (rng_() % 4 == 0 && shape_.wide)
      add(shape_.reducing ? t_.reduced_position() : t_.position());
    add(t_.scalar(type(), 0));
    for (int k = 0; k < 3; ++k) add(t_.constant(type(), static_cast<int>(rng_() % 9) - 3));
    for (int k = 0; k < shape_.instructions; ++k) step();
    const size_t stores = 1 + rng_() % 4;
    for (size_t k = 0; k < stores; ++k) {
      t_.store(values_[values_.size() - 1 - rng_() % std::min<size_t>(values_.size(), 10)]);
    }
    return t_.finish();
  }

 private:
  DType type() { return types_[rng_() % types_.size()]; }
  void add(Reg r) { values_.push_back(r); }

  /// Recent values come more often.
  Reg any() {
    const size_t n = values_.size();
    return values_[n - 1 - std::min(rng_() % n, rng_() % n)];
  }
  Reg of(DType dtype) {
    for (int k = 0; k < 6; ++k) {
      const Reg r = any();
      if (r.dtype() == dtype) return r;
    }
    return t_.cast(any(), dtype);
  }

  void step() {
    switch (rng_() % 8) {
      case 0: return conversion();
      case 1: return comparison();
      case 2: return shape_.reducing && rng_() % 3 == 0 ? reduction() : pointwise();
      case 3: return rng_() % 4 == 0 ? macro() : pointwise();
      case 4: {
        const DType dtype = type();
        const Reg mask = of(DType::kBool), a = of(dtype);
        return add(t_.select(mask, a, of(dtype)));
      }
      case 5: return shape_.everything && rng_() % 2 == 0 ? rare() : pointwise();
      default: return pointwise();
    }
  }

  void rare() {
    const DType real = rng_() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
    switch (rng_() % (shape_.reducing ? 5 : 3)) {
      case 0: return add(t_.scale(of(real), of(real)));
      case 1: {
        const Reg key = of(DType::kInt32),
                  counter = of(rng_() % 2 == 0 ? DType::kInt32 : DType::kInt64);
        return add(t_.threefry(key, of(DType::kInt32), counter, static_cast<uint32_t>(rng_() % 2)));
      }
      case 2: {
        const int first = static_cast<int>(Opcode::kExp), last = static_cast<int>(Opcode::kPow);
        const auto opcode = static_cast<Opcode>(
            first + static_cast<int>(rng_() % static_cast<unsigned>(last - first + 1)));
        const Reg x = of(real);
        return add(tile::info(opcode).arity == 1 ? t_.emit(opcode, {x}) : t_.emit(opcode, {x, x}));
      }
      case 3: return add(t_.cumsum(of(real)));
      default: return add(t_.reduce(Opcode::kReduceArgMin, of(real)));
    }
  }

  void conversion() {
    const Reg x = any();
    const DType to = type();
    // Which NaN it is must not be seen.
    const bool bits = !core::is_float(x.dtype()) && core::size_of(to) == core::size_of(x.dtype());
    add(bits && rng_() % 2 == 0 ? t_.bitcast(x, to) : t_.cast(x, to));
  }
  void comparison() {
    const DType dtype = type();
    const int first = static_cast<int>(Opcode::kEqual);
    const auto opcode = static_cast<Opcode>(first + static_cast<int>(rng_() % 6));
    const Reg a = of(dtype);
    add(t_.emit(opcode, {a, of(dtype)}));
  }
  void reduction() {
    const Opcode opcodes[] = {Opcode::kReduceSum, Opcode::kReduceSum,  Opcode::kReduceMax,
                              Opcode::kReduceMin, Opcode::kReduceProd, Opcode::kReduceArgMax};
    Reg x = any();
    if (x.dtype() == DType::kBool) return add(t_.reduce(Opcode::kReduceAny, x));
    add(t_.reduce(opcodes[rng_() % 6], x, shape_.order));
  }
  void macro() {
    const Opcode opcodes[] = {Opcode::kExp,  Opcode::kTanh,    Opcode::kLog1p,
                              Opcode::kSin,  Opcode::kSigmoid, Opcode::kSoftplus,
                              Opcode::kGelu, Opcode::kGeluTanh};
    const DType floats[] = {DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kFloat16};
    const DType dtype = floats[rng_() % (shape_.wide ? shape_.halves ? 4 : 3 : 2)];
    add(t_.emit(opcodes[rng_() % 8], {of(dtype)}));
  }
  void pointwise() {
    if (rng_() % 16 == 0) {
      const auto table = static_cast<tile::Table>(rng_() % tile::kTableCount);
      return add(t_.lookup(of(DType::kInt32), table));
    }
    for (;;) {
      const auto opcode = static_cast<Opcode>(rng_() % tile::kOpcodeCount);
      const tile::OpcodeInfo& op = tile::info(opcode);
      const DType dtype = type();
      if (op.family != tile::Family::kPointwise || op.rule != tile::Rule::kSame) continue;
      if (opcode == Opcode::kScale || !tile::accepts(op.domain, dtype)) continue;
      std::vector<Reg> operands;
      for (int k = 0; k < op.arity; ++k) operands.push_back(of(dtype));
      return add(t_.emit(opcode, operands));
    }
  }

  std::mt19937& rng_;
  const RandomShape& shape_;
  Builder t_;
  std::vector<DType> types_;
  std::vector<Reg> values_;
};

double special(std::mt19937& rng, DType dtype) {
  const double limits[] = {0.0,          -0.0,          1.0,    -1.0,   127.0, -128.0,
                           2147483648.0, -2147483648.0, 9.3e18, -1e300, 1e-40, 65519.9};
  const double floats[] = {INFINITY, -INFINITY, NAN};
  return core::is_float(dtype) && rng() % 2 == 0 ? floats[rng() % 3] : limits[rng() % 12];
}

}  // namespace

tile::Program random_program(std::mt19937& rng, const RandomShape& shape) {
  return Writer(rng, shape).run();
}

Bytes random_elements(std::mt19937& rng, DType dtype, size_t n) {
  std::normal_distribution<double> normal(0, 3);
  std::vector<double> values(n);
  for (double& x : values) x = rng() % 10 == 0 ? special(rng, dtype) : normal(rng);
  return encode(dtype, values);
}

}  // namespace mithril::cpu::testing
