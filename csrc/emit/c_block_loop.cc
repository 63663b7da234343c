#include "emit/c_block_loop.h"

#include <algorithm>

#include <fmt/format.h>

#include "emit/c_instruction.h"
#include "tile/reduction.h"

namespace mithril::emit {

using core::short_name;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

namespace {

constexpr int64_t kLongRow = 128;       // elements that are worth a block
constexpr int64_t kChunk = 1024;        // elements in shared memory; a part of a canonical block
constexpr int64_t kMostShared = 32768;  // bytes

static_assert(tile::kLanesBlock % kChunk == 0 && tile::kLanesWidth == 16);

}  // namespace

CBlockLoop::CBlockLoop(const plan::LoopCall& loop, std::span<const std::string> operands,
                       const CLoopCut& cut)
    : CLoopPrinter(loop, operands, false, cut) {}

bool CBlockLoop::fits() const {
  int64_t bytes = 0;
  for (const Instruction& i : program_.code) {
    if (scans(i)) return false;
    if (!reduces(i)) continue;
    const bool is_ordered = i.opcode == Opcode::kReduceSum || i.opcode == Opcode::kReduceProd;
    if (finds_place(i.opcode) || (is_ordered && i.order != tile::Order::kLanes)) return false;
    bytes += kChunk * static_cast<int64_t>(core::size_of(at(i.operands[0]).dtype));
  }
  return has_rows() && row_length() >= kLongRow && bytes <= kMostShared;
}

void CBlockLoop::define(const Instruction& i, std::set<std::string>& definitions) const {
  const core::DType from = at(i.operands[0]).dtype;
  definitions.insert(c_reduction(i.opcode, from));
  definitions.insert(fmt::format("M_TAKE_LANES({0}, m_{1}, m_{2}_{1})\n", c_state(i.opcode, from),
                                 short_name(from), tile::info(tile::combining(i.opcode)).text));
}

void CBlockLoop::statement(RegId r) {
  if (stores(at(r)) && at(r).level != Level::kLane) line("if (thread == 0)");
  CLoopPrinter::statement(r);
}

/// Declares what the threads share of a reduction.
void CBlockLoop::declare(RegId r) {
  const std::string_view type = short_name(at(r).dtype);
  line(fmt::format("__shared__ {}_state s{};", state(r), r));
  line(fmt::format("__shared__ m_{0} t{1}[{2}], u{1};", type, r, kChunk));
  line(fmt::format("if (thread == 0) {}_begin(&s{});", state(r), r));
}

void CBlockLoop::places_in_row() {
  int64_t below = 1;
  for (size_t d = reduced_.rank(); d-- > 0; below *= reduced_.sizes[d]) {
    const std::string rest = below == 1 ? "(c + j)" : fmt::format("(c + j) / {}", below);
    line(d == 0 ? fmt::format("const m_i64 r0 = {};", rest)
                : fmt::format("const m_i64 r{} = {} % {};", d, rest, reduced_.sizes[d]));
    line(fmt::format("(void)r{};", d));
  }
}

/// One pass along the row; `lanes`: what is computed in it.
void CBlockLoop::share_elements(const std::vector<bool>& lanes, const std::vector<RegId>& states) {
  open(fmt::format("for (m_i64 c = 0; c < {0}; c += {1}) {{", row_length(), kChunk));
  line(fmt::format("const int n = {0} - c < {1} ? (int)({0} - c) : {1};", row_length(), kChunk));
  open(fmt::format("for (int j = thread; j < n; j += {}) {{", cut_.threads));
  places_in_row();
  statements([&](RegId r) { return lanes[r] && at(r).level == Level::kLane; });
  for (const RegId r : states) line(fmt::format("t{}[j] = {};", r, name(at(r).operands[0])));
  close();
  if (!states.empty()) {
    line("__syncthreads();");
    for (const RegId r : states) {
      line(fmt::format("if (thread < 16) {0}_take_lane(&s{1}, t{1}, n, thread);", state(r), r));
    }
    line("__syncthreads();");
    for (const RegId r : states) {
      line(fmt::format("if (thread == 0) {}_take_block(&s{}, n, {});", state(r), r,
                       tile::kLanesBlock));
    }
  }
  close();
}

void CBlockLoop::section(int32_t s) {
  if (s == 0) line("const int thread = (int)threadIdx.x;");
  statements(
      [&](RegId r) { return at(r).level == Level::kRow && section_[r] == s && !reduces(at(r)); });
  const Wanted is_root = [&](RegId r) {
    return section_[r] == s && (reduces(at(r)) || (stores(at(r)) && at(r).level == Level::kLane));
  };
  if (!any(is_root)) return;
  std::vector<bool> lanes = needed_lanes(is_root);
  std::vector<RegId> states;
  for (RegId r = 0; r < lanes.size(); ++r) {
    lanes[r] = lanes[r] || (is_root(r) && stores(at(r)));
    if (is_root(r) && reduces(at(r))) states.push_back(r);
  }
  for (const RegId r : states) declare(r);
  share_elements(lanes, states);
  for (const RegId r : states) {
    line(fmt::format("if (thread == 0) u{0} = {1}_end(&s{0}, 16, {2});", r, state(r),
                     c_identity(at(r).opcode, at(at(r).operands[0]).dtype)));
  }
  if (!states.empty()) line("__syncthreads();");
  for (const RegId r : states) {
    line(fmt::format("const m_{0} v{1} = u{1};", short_name(at(r).dtype), r));
  }
}

}  // namespace mithril::emit
