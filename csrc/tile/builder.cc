#include "tile/builder.h"

#include <algorithm>

#include "tile/convert.h"

namespace mithril::tile {

using core::DType;

namespace {

DType result_type(Opcode opcode, std::span<const Reg> operands) {
  switch (info(opcode).rule) {
    case Rule::kCompare: return DType::kBool;
    case Rule::kIndex: return DType::kInt64;
    case Rule::kThreefry: return DType::kInt32;
    case Rule::kLookup: return DType::kFloat32;
    case Rule::kSelect: return operands[1].dtype();
    default: return operands[0].dtype();
  }
}

Level result_level(Opcode opcode, std::span<const Reg> operands) {
  const Family family = info(opcode).family;
  if (family == Family::kReduce) return Level::kRow;
  if (family == Family::kScan) return Level::kLane;
  Level level = Level::kUniform;
  for (const Reg r : operands) level = std::max(level, r.level());
  return level;
}

void check_types(Opcode opcode, std::span<const Reg> operands) {
  const OpcodeInfo& op = info(opcode);
  MITHRIL_CHECK(operands.size() == op.arity, "tile {} takes {} operands, got {}", op.text, op.arity,
                operands.size());
  const size_t first = op.rule == Rule::kSelect ? 1 : 0;
  for (size_t k = first; k < operands.size(); ++k) {
    const DType dtype = operands[k].dtype();
    MITHRIL_CHECK(accepts(op.domain, dtype), "tile {} does not take {}", op.text,
                  core::short_name(dtype));
    MITHRIL_CHECK(op.rule == Rule::kThreefry || dtype == operands[first].dtype(),
                  "tile {}: operands must have one type, got {} and {}", op.text,
                  core::short_name(operands[first].dtype()), core::short_name(dtype));
  }
  MITHRIL_CHECK(first == 0 || operands[0].dtype() == DType::kBool,
                "tile select: the condition must be bool, got {}",
                core::short_name(operands[0].dtype()));
}

}  // namespace

size_t Builder::InstructionHash::operator()(const Instruction& i) const {
  const auto head = static_cast<uint64_t>(i.opcode) | static_cast<uint64_t>(i.dtype) << 8 |
                    static_cast<uint64_t>(i.level) << 16 | static_cast<uint64_t>(i.order) << 24 |
                    static_cast<uint64_t>(i.index) << 32;
  uint64_t h = head * 0x9e3779b97f4a7c15u;
  for (const RegId r : i.operands) h = (h ^ (h >> 31) ^ r) * 0xbf58476d1ce4e5b9u;
  return (h ^ i.bits) * 0x94d049bb133111ebu;
}

RegId Builder::own(Reg reg) const {
  MITHRIL_CHECK(reg.builder_ == this, "tile: register of another builder");
  return reg.id_;
}

Reg Builder::intern(const Instruction& instruction) {
  const auto [at, fresh] = seen_.try_emplace(instruction, static_cast<RegId>(program_.code.size()));
  if (fresh) program_.code.push_back(instruction);
  return Reg(this, at->second);
}

Reg Builder::leaf(Opcode opcode, DType dtype, Level level, uint32_t index, uint64_t bits) {
  Instruction i;
  i.opcode = opcode;
  i.dtype = dtype;
  i.level = level;
  i.index = index;
  i.bits = bits;
  return intern(i);
}

Reg Builder::derived(Opcode opcode, DType dtype, std::span<const Reg> operands, uint32_t index) {
  Instruction i;
  i.opcode = opcode;
  i.dtype = dtype;
  i.level = result_level(opcode, operands);
  i.index = index;
  for (size_t k = 0; k < operands.size(); ++k) i.operands[k] = own(operands[k]);
  return intern(i);
}

Reg Builder::load(DType dtype, Level level) {
  program_.inputs.push_back(dtype);
  const auto index = static_cast<uint32_t>(program_.inputs.size() - 1);
  return leaf(Opcode::kLoad, dtype, level, index);
}

Reg Builder::scalar(DType dtype, uint32_t k) {
  program_.scalars = std::max(program_.scalars, k + 1);
  return leaf(Opcode::kScalar, dtype, Level::kUniform, k);
}

Reg Builder::constant(DType dtype, double value) {
  return constant_bits(dtype, bits_of_double(dtype, value));
}

Reg Builder::constant_int(DType dtype, int64_t value) {
  return constant_bits(dtype, bits_of_int(dtype, value));
}

Reg Builder::constant_bits(DType dtype, uint64_t bits) {
  return leaf(Opcode::kConstant, dtype, Level::kUniform, 0, bits);
}

Reg Builder::position() { return leaf(Opcode::kPosition, DType::kInt64, Level::kLane); }
Reg Builder::row_position() { return leaf(Opcode::kRowPosition, DType::kInt64, Level::kRow); }
Reg Builder::reduced_position() {
  return leaf(Opcode::kReducedPosition, DType::kInt64, Level::kLane);
}

void Builder::store(Reg value) {
  store(value, value.level() == Level::kRow ? Level::kRow : Level::kLane);
}

void Builder::store(Reg value, Level level) {
  MITHRIL_CHECK(level >= value.level() && level != Level::kUniform,
                "tile: a lane value cannot be stored as a row output");
  Instruction i;
  i.opcode = Opcode::kStore;
  i.dtype = value.dtype();
  i.level = level;
  i.index = static_cast<uint32_t>(program_.outputs.size());
  i.operands[0] = own(value);
  program_.outputs.push_back(i.dtype);
  program_.code.push_back(i);
}

Reg Builder::emit(Opcode opcode, std::initializer_list<Reg> operands) {
  return emit(opcode, std::span<const Reg>(operands.begin(), operands.size()));
}

Reg Builder::emit(Opcode opcode, std::span<const Reg> operands) {
  check_types(opcode, operands);
  return derived(opcode, result_type(opcode, operands), operands);
}

Reg Builder::cast(Reg x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return derived(Opcode::kCast, dtype, std::span(&x, 1));
}

Reg Builder::bitcast(Reg x, DType dtype) {
  if (x.dtype() == dtype) return x;
  MITHRIL_CHECK(core::size_of(x.dtype()) == core::size_of(dtype), "tile bitcast: sizes differ");
  return derived(Opcode::kBitcast, dtype, std::span(&x, 1));
}

Reg Builder::reduce(Opcode opcode, Reg x, Order order) {
  MITHRIL_CHECK(info(opcode).family == Family::kReduce, "tile {} is no reduction",
                info(opcode).text);
  const std::span<const Reg> operands(&x, 1);
  check_types(opcode, operands);
  Instruction i;
  i.opcode = opcode;
  i.dtype = result_type(opcode, operands);
  i.level = Level::kRow;
  const bool ordered = opcode == Opcode::kReduceSum || opcode == Opcode::kReduceProd;
  i.order = ordered ? order : Order::kLanes;
  i.operands[0] = own(x);
  return intern(i);
}

Reg Builder::cumsum(Reg x) { return emit(Opcode::kCumSum, {x}); }

Reg Builder::threefry(Reg key0, Reg key1, Reg counter, uint32_t word) {
  const std::array<Reg, 3> operands{key0, key1, counter};
  return derived(Opcode::kThreefry, DType::kInt32, operands, word);
}

Reg Builder::lookup(Reg index, Table table) {
  MITHRIL_CHECK(index.dtype() == DType::kInt32, "tile lookup takes i32, got {}",
                core::short_name(index.dtype()));
  return derived(Opcode::kLookup, DType::kFloat32, {{index}}, static_cast<uint32_t>(table));
}

Reg Builder::uniform(DType dtype, Reg key0, Reg key1, Reg counter) {
  MITHRIL_CHECK(core::is_float(dtype), "tile uniform: a float type, got {}",
                core::short_name(dtype));
  const Reg word0 = threefry(key0, key1, counter, 0);
  if (dtype != DType::kFloat64) {
    // A narrower type keeps its leading bits only: 1 must not appear.
    const double bits = dtype == DType::kFloat16 ? 11 : dtype == DType::kBFloat16 ? 8 : 24;
    const Reg top = shift_right_logical(word0, 32 - bits);
    const double unit = dtype == DType::kFloat16    ? 0x1p-11
                        : dtype == DType::kBFloat16 ? 0x1p-8
                                                    : 0x1p-24;
    return cast(cast(top, DType::kFloat32) * unit, dtype);
  }
  const Reg word1 = threefry(key0, key1, counter, 1);
  const Reg high = cast(shift_right_logical(word0, 5.0), DType::kFloat64);
  const Reg low = cast(shift_right_logical(word1, 6.0), DType::kFloat64);
  return (high * 0x1p26 + low) * 0x1p-53;
}

Reg Builder::normal(DType dtype, Reg key0, Reg key1, Reg counter) {
  const DType wide = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Reg first = shift_left(counter, 1.0);
  const Reg u = uniform(wide, key0, key1, first);
  const Reg v = uniform(wide, key0, key1, bit_or(first, constant_like(first, 1)));
  const Reg radius = sqrt(log(1.0 - u) * -2.0);
  return cast(radius * cos(v * 0x1.921fb54442d18p+2), dtype);
}

Reg Builder::copy(const Instruction& instruction, std::span<const Reg> operands) {
  Instruction i = instruction;
  i.level = result_level(i.opcode, operands);
  for (size_t k = 0; k < operands.size(); ++k) i.operands[k] = own(operands[k]);
  return intern(i);
}

std::vector<Reg> Builder::append(const Program& body, std::span<const Reg> inputs,
                                 std::span<const Reg> scalars) {
  MITHRIL_CHECK(inputs.size() == body.inputs.size() && scalars.size() >= body.scalars,
                "tile append: the body has {} inputs and {} scalars, got {} and {}",
                body.inputs.size(), body.scalars, inputs.size(), scalars.size());
  std::vector<Reg> map(body.code.size()), out(body.outputs.size());
  for (size_t at = 0; at < body.code.size(); ++at) {
    const Instruction& i = body.code[at];
    std::array<Reg, 3> operands;
    const size_t arity = info(i.opcode).arity;
    for (size_t k = 0; k < arity; ++k) operands[k] = map[i.operands[k]];
    if (i.opcode == Opcode::kLoad) {
      map[at] = inputs[i.index];
      MITHRIL_CHECK(map[at].dtype() == i.dtype && map[at].level() <= i.level,
                    "tile append: input {} must be {}", i.index, core::short_name(i.dtype));
    } else if (i.opcode == Opcode::kScalar) {
      map[at] = scalars[i.index];
    } else if (i.opcode == Opcode::kStore) {
      out[i.index] = operands[0];
    } else if (arity == 0) {
      map[at] = intern(i);
    } else {
      map[at] = copy(i, std::span(operands.data(), arity));
    }
  }
  return out;
}

Program Builder::finish() {
  Program out;
  out.inputs = std::move(program_.inputs);
  out.outputs = std::move(program_.outputs);
  out.scalars = program_.scalars;
  std::vector<bool> used(program_.code.size(), false);
  for (size_t at = program_.code.size(); at-- > 0;) {
    const Instruction& i = program_.code[at];
    used[at] = used[at] || i.opcode == Opcode::kStore;
    for (const RegId r : i.operands) {
      if (used[at] && r != kNoReg) used[r] = true;
    }
  }
  std::vector<RegId> renamed(program_.code.size(), kNoReg);
  for (size_t at = 0; at < used.size(); ++at) {
    if (!used[at]) continue;
    Instruction i = program_.code[at];
    for (RegId& r : i.operands) r = r == kNoReg ? r : renamed[r];
    renamed[at] = static_cast<RegId>(out.code.size());
    out.code.push_back(i);
  }
  program_ = Program{};
  seen_.clear();
  return out;
}

}  // namespace mithril::tile
