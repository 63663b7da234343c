#include "tile/program.h"

#include <algorithm>

namespace mithril::tile {

bool accepts(Domain domain, core::DType dtype) {
  if (core::is_abstract(dtype)) return false;
  const bool is_bool = dtype == core::DType::kBool;
  switch (domain) {
    case Domain::kAny: return true;
    case Domain::kNumber: return !is_bool;
    case Domain::kFloat: return core::is_float(dtype);
    case Domain::kBits: return !core::is_float(dtype);
    case Domain::kBool: return is_bool;
  }
  return false;
}

bool reads_position(const Program& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& i) { return i.opcode == Opcode::kPosition; });
}

bool is_reducing(const Program& program) {
  for (const Instruction& i : program.code) {
    const Family family = info(i.opcode).family;
    if (family == Family::kReduce || family == Family::kScan) return true;
    if (i.opcode == Opcode::kReducedPosition || i.opcode == Opcode::kRowPosition) return true;
    if (i.opcode == Opcode::kLoad && i.level == Level::kRow) return true;
  }
  return false;
}

static Level level_of(const Program& program, Opcode opcode, uint32_t k) {
  for (const Instruction& i : program.code) {
    if (i.opcode == opcode && i.index == k) return i.level;
  }
  return Level::kLane;
}

Level output_level(const Program& program, uint32_t k) {
  return level_of(program, Opcode::kStore, k);
}

Level input_level(const Program& program, uint32_t k) {
  return level_of(program, Opcode::kLoad, k);
}

size_t hash(const Program& program) {
  size_t h = program.code.size();
  const auto mix = [&h](uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29); };
  for (const Instruction& i : program.code) {
    mix(static_cast<uint64_t>(i.opcode) | static_cast<uint64_t>(i.dtype) << 8 |
        static_cast<uint64_t>(i.level) << 16 | static_cast<uint64_t>(i.order) << 24 |
        static_cast<uint64_t>(i.index) << 32);
    mix(i.operands[0] | static_cast<uint64_t>(i.operands[1]) << 32);
    mix(i.operands[2]);
    mix(i.bits);
  }
  for (const core::DType dtype : program.inputs) mix(static_cast<uint64_t>(dtype));
  for (const core::DType dtype : program.outputs) mix(static_cast<uint64_t>(dtype));
  return h;
}

static int64_t cost_of(const Instruction& i) {
  switch (info(i.opcode).family) {
    case Family::kMacro: return 24;
    case Family::kExtern: return 64;  // one lane after the other
    default: return 1;
  }
}

static void count(const Instruction& i, Statistics& out) {
  const auto bytes = static_cast<int64_t>(core::size_of(i.dtype));
  if (i.opcode == Opcode::kLoad && i.level == Level::kLane) {
    ++out.loads;
    out.load_bytes += bytes;
  } else if (i.opcode == Opcode::kStore && i.level == Level::kLane) {
    ++out.stores;
    out.store_bytes += bytes;
  } else if (info(i.opcode).arity > 0 && i.opcode != Opcode::kStore) {
    const bool per_point = i.level == Level::kLane || info(i.opcode).family == Family::kReduce;
    ++(per_point ? out.lane_operations : out.row_operations);
    (per_point ? out.lane_cost : out.row_cost) += cost_of(i);
  }
}

Statistics statistics(const Program& program) {
  Statistics out;
  for (const Instruction& i : program.code) {
    if (i.level != Level::kUniform) count(i, out);
  }
  return out;
}

}  // namespace mithril::tile
