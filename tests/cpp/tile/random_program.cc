#include "tile/random_program.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tile/builder.h"
#include "tile/convert.h"

namespace mithril::tile::testing {
namespace {

using core::DType;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kFloat64,
                            DType::kInt32,   DType::kInt64,   DType::kBool,    DType::kUInt8,
                            DType::kInt8,    DType::kInt16,   DType::kFloat16, DType::kBFloat16};

class Generator {
 public:
  Generator(std::mt19937& rng, bool reducing) : rng_(rng), reducing_(reducing) {}

  Program run(int length) {
    const DType main = any_type();
    for (int k = 0; k < 2; ++k) values_.push_back(t_.load(main));
    values_.push_back(t_.load(any_type()));
    if (reducing_) values_.push_back(t_.load_row(any_type()));
    values_.push_back(t_.scalar(any_type(), 0));
    values_.push_back(t_.position());
    for (int k = 0; k < length; ++k) add();
    const size_t outputs = 1 + below(4);
    for (size_t k = 0; k < outputs; ++k)
      store(values_[values_.size() - 1 - below(std::min<size_t>(values_.size(), 8))]);
    return t_.finish();
  }

 private:
  size_t below(size_t n) { return rng_() % n; }
  DType any_type() { return kTypes[below(std::size(kTypes))]; }

  // A value of the type, the younger the likelier; made of another one where there is none.
  Reg of_type(DType dtype) {
    for (int tries = 0; tries < 12; ++tries) {
      const size_t back = std::min(below(values_.size()), below(values_.size()));
      const Reg x = values_[values_.size() - 1 - back];
      if (x.dtype() == dtype) return x;
    }
    if (below(3) == 0) return constant(dtype);
    return t_.cast(values_[below(values_.size())], dtype);
  }

  Reg constant(DType dtype) {
    if (core::is_float(dtype)) return t_.constant(dtype, (static_cast<double>(below(65)) - 32) / 8);
    return t_.constant_int(dtype, dtype == DType::kBool ? 1 : static_cast<int64_t>(below(11)) - 5);
  }

  DType type_of(Domain domain) {
    for (;;) {
      const DType dtype = any_type();
      if (accepts(domain, dtype)) return dtype;
    }
  }

  void add() {
    const auto opcode = static_cast<Opcode>(below(kOpcodeCount));
    const OpcodeInfo& op = info(opcode);
    switch (op.family) {
      case Family::kLeaf:
      case Family::kStore:
      case Family::kExtern: return;  // extern ones come with macros
      case Family::kReduce:
        if (reducing_) values_.push_back(reduction(opcode, of_type(type_of(op.domain))));
        return;
      case Family::kScan:
        if (reducing_) values_.push_back(t_.cumsum(of_type(type_of(op.domain))));
        return;
      default: values_.push_back(pointwise(opcode, op)); return;
    }
  }

  Reg reduction(Opcode opcode, Reg x) {
    return t_.reduce(opcode, x, below(2) == 0 ? Order::kLanes : Order::kRows);
  }

  Reg pointwise(Opcode opcode, const OpcodeInfo& op) {
    if (opcode == Opcode::kCast) return t_.cast(of_type(any_type()), any_type());
    if (opcode == Opcode::kBitcast) {
      // Which NaN a float is, is not defined, so its bits are not looked at.
      const DType from = type_of(Domain::kBits);
      for (;;) {
        const DType to = any_type();
        if (core::size_of(from) == core::size_of(to)) return t_.bitcast(of_type(from), to);
      }
    }
    if (opcode == Opcode::kThreefry) {
      const DType counter = below(2) == 0 ? DType::kInt32 : DType::kInt64;
      return t_.threefry(of_type(DType::kInt32), of_type(DType::kInt32), of_type(counter),
                         static_cast<uint32_t>(below(2)));
    }
    const DType dtype = type_of(op.domain);
    std::vector<Reg> operands;
    if (op.rule == Rule::kSelect) operands.push_back(of_type(DType::kBool));
    while (operands.size() < op.arity) operands.push_back(of_type(dtype));
    return t_.emit(opcode, operands);
  }

  void store(Reg x) {
    if (x.level() == Level::kUniform || (x.level() == Level::kRow && below(2) == 0)) {
      return t_.store(x, Level::kLane);
    }
    t_.store(x);
  }

  std::mt19937& rng_;
  bool reducing_;
  Builder t_;
  std::vector<Reg> values_;
};

double random_number(std::mt19937& rng, DType dtype) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double kEdges[] = {
      0.0,  -0.0,   inf,     -inf,    std::numeric_limits<double>::quiet_NaN(),
      1e30, -1e300, 1e-40,   5e-324,  2147483648.0,
      -1.0, 1.0,    -9.3e18, 65504.0, 0.5};
  if (rng() % 16 == 0) return kEdges[rng() % std::size(kEdges)];
  if (core::is_float(dtype)) return std::normal_distribution<double>(0, 3)(rng);
  return static_cast<double>(static_cast<int64_t>(rng() % 41) - 20);
}

}  // namespace

Program random_program(std::mt19937& rng, bool reducing, int length) {
  return Generator(rng, reducing).run(length);
}

Bytes random_elements(std::mt19937& rng, DType dtype, int64_t count) {
  const size_t size = core::size_of(dtype);
  Bytes out(static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = bits_of_double(dtype, random_number(rng, dtype));
    std::memcpy(out.data() + static_cast<size_t>(i) * size, &bits, size);
  }
  return out;
}

std::vector<Bytes> random_inputs(std::mt19937& rng, const Program& program, int64_t kept,
                                 int64_t reduced) {
  std::vector<Bytes> out;
  for (uint32_t k = 0; k < program.inputs.size(); ++k) {
    const bool row = input_level(program, k) == Level::kRow;
    out.push_back(random_elements(rng, program.inputs[k], row ? kept : kept * reduced));
  }
  return out;
}

}  // namespace mithril::tile::testing
