#include "emit/c_block_loop.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "core/rounding.h"
#include "emit/c_instruction.h"
#include "tile/reduction.h"

namespace mithril::emit {

using core::short_name;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

namespace {

constexpr int64_t kLongRow = 128;  // elements that are worth a block
constexpr int64_t kChunk = 1024;   // elements in shared memory; a part of a canonical block
constexpr int64_t kLanes = 16;

static_assert(tile::kLanesBlock % kChunk == 0 && tile::kLanesWidth == kLanes);

/// Names the functions of a reduction, which stand beside those of rows that no threads share.
std::string shared_name(Opcode opcode, core::DType dtype) {
  return c_state(opcode, dtype) + "_shared";
}

}  // namespace

CBlockLoop::CBlockLoop(const plan::LoopCall& loop, std::span<const std::string> operands,
                       const CLoopCut& cut)
    : CLoopPrinter(loop, operands, false, cut) {}

bool CBlockLoop::fits() const {
  int64_t bytes = 0;
  for (RegId r = 0; r < program_.code.size(); ++r) {
    const Instruction& i = at(r);
    if (scans(i)) return false;
    if (!reduces(i)) continue;
    const bool is_ordered = i.opcode == Opcode::kReduceSum || i.opcode == Opcode::kReduceProd;
    if (finds_place(i.opcode) || (is_ordered && i.order != tile::Order::kLanes)) return false;
    int64_t elements = 0;
    for (const plan::SharedArray& array : shared(r)) elements += array.count;
    bytes += elements * static_cast<int64_t>(core::size_of(i.dtype));
  }
  return has_rows() && row_length() >= kLongRow && bytes <= cut_.shared_bytes;
}

CLoopUnits CBlockLoop::block_units(std::set<std::string>& definitions) {
  CLoopUnits out = units(definitions);
  out.threads = cut_.threads;
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (!reduces(at(r))) continue;
    for (plan::SharedArray& array : shared(r)) out.shared.push_back(std::move(array));
  }
  return out;
}

/// Counts the blocks of the canonical order in a row.
int64_t CBlockLoop::blocks() const { return core::ceil_div(row_length(), tile::kLanesBlock); }

/// Says what the threads share of a reduction: elements, lanes, and sums of finished blocks that
/// wait for others, with what rounding took from them.
std::vector<plan::SharedArray> CBlockLoop::shared(RegId r) const {
  const std::string type = fmt::format("m_{}", short_name(at(r).dtype));
  const auto waiting = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(blocks())));
  return {{type, fmt::format("t{}", r), kChunk},
          {type, fmt::format("l{}", r), kLanes},
          {type, fmt::format("s{}", r), waiting},
          {type, fmt::format("e{}", r), waiting}};
}

void CBlockLoop::define(const Instruction& i, std::set<std::string>& definitions) const {
  const core::DType from = at(i.operands[0]).dtype;
  const bool keeps_rest = i.opcode == Opcode::kReduceSum && core::is_float(from);
  definitions.insert(fmt::format("M_SHARED_LANES({0}, m_{1}, m_{2}_{1}, {3})\n",
                                 shared_name(i.opcode, from), short_name(from),
                                 tile::info(tile::combining(i.opcode)).text, keeps_rest ? 1 : 0));
}

std::string CBlockLoop::function(RegId r) const {
  return shared_name(at(r).opcode, at(at(r).operands[0]).dtype);
}

void CBlockLoop::statement(RegId r) {
  if (stores(at(r)) && at(r).level != Level::kLane) line("if (thread == 0)");
  CLoopPrinter::statement(r);
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
  const std::string n =
      row_length() % kChunk == 0
          ? std::to_string(kChunk)
          : fmt::format("({0} - c < {1} ? (int)({0} - c) : {1})", row_length(), kChunk);
  open(fmt::format("for (int j = thread; j < {}; j += {}) {{", n, cut_.threads));
  places_in_row();
  statements([&](RegId r) { return lanes[r] && at(r).level == Level::kLane; });
  for (const RegId r : states) line(fmt::format("t{}[j] = {};", r, name(at(r).operands[0])));
  close();
  if (!states.empty()) {
    line("M_BARRIER();");
    for (const RegId r : states) {
      line(
          fmt::format("if (thread < {3}) {1}_lane(l{0}, t{0}, {4}, thread, "
                      "c % {2} == 0);",
                      r, function(r), tile::kLanesBlock, kLanes, n));
    }
    line("M_BARRIER();");
    // Of a block the last piece; lanes that no element has been in are not read.
    open(fmt::format("if (c + {0} >= {1} || c % {2} == {3}) {{", kChunk, row_length(),
                     tile::kLanesBlock, tile::kLanesBlock - kChunk));
    line(fmt::format("const m_i64 block = c / {0}, left = {1} - block * {0};", tile::kLanesBlock,
                     row_length()));
    for (const RegId r : states) {
      line(
          fmt::format("if (thread == 0) {1}_fold(l{0}, left < {2} ? (int)left : {2}, s{0}, e{0}, "
                      "block);",
                      r, function(r), kLanes));
    }
    close();
  }
  close();
}

void CBlockLoop::section(int32_t s) {
  if (s == 0) line("const int thread = M_OWN_THREAD;");
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
  share_elements(lanes, states);
  for (const RegId r : states) {
    line(fmt::format("if (thread == 0) s{0}[0] = {1}_end(s{0}, e{0}, {2});", r, function(r),
                     blocks()));
  }
  if (!states.empty()) line("M_BARRIER();");
  for (const RegId r : states) {
    line(fmt::format("const m_{0} v{1} = s{1}[0];", short_name(at(r).dtype), r));
  }
}

}  // namespace mithril::emit
