// Three forms. Flat: no rows, the innermost loop runs along the last kept dim. Inside: rows run
// along the reduced dims, the innermost of which is done in chunks; what is reduced of a chunk is
// computed first, and reduced from there. Across: rows run along the reduced dims, many columns of
// the last kept dim at a time. Compilers vectorise the innermost loop of each.
#include "emit/c_loop.h"

#include <algorithm>

#include <fmt/format.h>

#include "emit/c_block_loop.h"
#include "emit/c_instruction.h"
#include "emit/c_loop_printer.h"
#include "emit/c_vector_loop.h"
#include "tile/reduction.h"
#include "tile/sections.h"

namespace mithril::emit {

using core::DType;
using core::short_name;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

constexpr int64_t kColumns = 64;  // that are done side by side

namespace {

/// The same places in the same order with the fewest dims.
CLoopDims merged(const std::vector<int64_t>& sizes,
                 const std::vector<std::vector<int64_t>>& strides) {
  CLoopDims out;
  out.strides.resize(strides.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool chains = out.rank() > 0;
    for (size_t b = 0; chains && b < strides.size(); ++b) {
      chains = strides[b].empty() || out.strides[b].back() == strides[b][d] * sizes[d];
    }
    if (!chains) out.sizes.push_back(1);
    out.sizes.back() *= sizes[d];
    for (size_t b = 0; b < strides.size(); ++b) {
      if (strides[b].empty()) continue;
      if (chains) {
        out.strides[b].back() = strides[b][d];
      } else {
        out.strides[b].push_back(strides[b][d]);
      }
    }
  }
  for (auto& own : out.strides) own.resize(out.rank(), 0);
  return out;
}

}  // namespace

CLoopPrinter::CLoopPrinter(const plan::LoopCall& loop, std::span<const std::string> operands,
                           bool parallel, const CLoopCut& cut, tile::Expansion expansion)
    : IndentedText(1),
      program_(tile::expand(loop.program, expansion)),
      section_(tile::sections_of(program_)),
      operands_(operands),
      parallel_(parallel),
      cut_(cut),
      kept_(merged(loop.kept, loop.kept_strides)),
      reduced_(merged(loop.reduced, along_rows(loop))) {}

std::string CLoopPrinter::run(std::set<std::string>& definitions) {
  across_ = goes_across();
  if (kept_.is_empty()) return {};
  define(definitions);
  for (size_t d = 0; d < kept_.rank(); ++d) places_.push_back(fmt::format("k{}", d));
  uniforms();
  if (!has_rows()) {
    flat();
  } else {
    rows();
  }
  return take_text();
}

CLoopUnits CLoopPrinter::units(std::set<std::string>& definitions) {
  across_ = cut_.takes_columns && goes_across();
  if (kept_.is_empty()) return {};
  define(definitions);
  for (size_t d = 0; d < kept_.rank(); ++d) places_.push_back(fmt::format("k{}", d));
  uniforms();
  CLoopUnits out;
  out.units = open_units(across_ ? kColumns : has_rows() ? 0 : cut_.piece);
  if (has_rows()) {
    sections();
  } else {
    elements();
  }
  close();
  out.body = take_text();
  return out;
}

std::string CLoopPrinter::stretch(std::set<std::string>& definitions) {
  is_stretch_ = true;
  define(definitions);
  for (size_t d = 0; d < kept_.rank(); ++d) places_.push_back(fmt::format("k{}", d));
  uniforms();
  open("for (m_i64 at = from; at < from + count;) {");
  const int64_t size = kept_.rank() > 0 ? kept_.sizes.back() : 1;
  if (kept_.rank() > 0) outer_places("at", size, kept_.rank() - 1);
  line(kept_.rank() > 1 ? fmt::format("const m_i64 first = at % {};", size)
                        : "const m_i64 first = at;");
  line(
      fmt::format("const m_i64 left = from + count - at, last = {0} - first < left ? {0} : first "
                  "+ left;",
                  size));
  elements();
  line("at += last - first;");
  close();
  return take_text();
}

void CLoopPrinter::elements() {
  const bool is_cut = kept_.rank() > 0;
  if (is_cut) open(fmt::format("for (m_i64 {0} = first; {0} < last; ++{0}) {{", places_.back()));
  statements([&](RegId r) { return at(r).level != Level::kUniform || stores(at(r)); });
  if (is_cut) close();
}

bool CLoopPrinter::has_rows() const { return reduced_.rank() > 0 || tile::is_reducing(program_); }

// Row operands have no places along rows.
std::vector<std::vector<int64_t>> CLoopPrinter::along_rows(const plan::LoopCall& loop) {
  std::vector<std::vector<int64_t>> out = loop.reduced_strides;
  for (size_t b = 0; b < out.size(); ++b) {
    const size_t inputs = loop.program.inputs.size();
    const auto k = static_cast<uint32_t>(b < inputs ? b : b - inputs);
    const Level level = b < inputs ? input_level(loop.program, k) : output_level(loop.program, k);
    if (level != Level::kLane) out[b].assign(loop.reduced.size(), 0);
  }
  return out;
}

void CLoopPrinter::define(std::set<std::string>& definitions) const {
  for (const Instruction& i : program_.code) {
    if (i.opcode == Opcode::kLookup) definitions.insert(c_table(i.index));
    if (reduces(i)) define(i, definitions);
  }
}

// What c_plan_text.h has for the form of this loop. Definitions stand in the order of their text.
void CLoopPrinter::define(const Instruction& i, std::set<std::string>& definitions) const {
  const DType from = at(i.operands[0]).dtype;
  const std::string name = c_state(i.opcode, from), type(short_name(from));
  const bool places = finds_place(i.opcode);
  if (places || !across_) definitions.insert(c_reduction(i.opcode, from));
  if (places) {
    const char* const form = across_ ? "M_TAKE_ROW_PLACES" : "M_TAKE_PLACES";
    definitions.insert(fmt::format("{}({}, m_{})\n", form, name, type));
    return;
  }
  const std::string_view combine = tile::info(tile::combining(i.opcode)).text;
  const bool keeps_rest = i.opcode == Opcode::kReduceSum && core::is_float(from);
  definitions.insert(across_
                         ? fmt::format("M_TAKE_ROWS({0}, m_{1}, m_{2}_{1}, {3})\n", name, type,
                                       combine, keeps_rest ? 1 : 0)
                         : fmt::format("M_TAKE_ALL({0}, m_{1}, m_{2}_{1})\n", name, type, combine));
}

const Instruction& CLoopPrinter::at(RegId r) const { return program_.code[r]; }
size_t CLoopPrinter::operand_of(const Instruction& i) const {
  return i.index + (stores(i) ? program_.inputs.size() : 0);
}

// ---- text

void CLoopPrinter::open_loop(std::string_view variable, int64_t size) {
  if (parallel_ && !is_open_) line("M_PARALLEL");
  is_open_ = true;
  open(fmt::format("for (m_i64 {0} = 0; {0} < {1}; ++{0}) {{", variable, size));
}

// ---- places

void CLoopPrinter::add_term(std::string& text, const std::string& place, int64_t stride) {
  if (stride == 0) return;
  if (!text.empty()) text += " + ";
  text += stride == 1 ? place : fmt::format("{} * {}", place, stride);
}

std::string CLoopPrinter::index(size_t operand) const {
  std::string text;
  for (size_t d = 0; d < kept_.rank(); ++d) {
    add_term(text, places_[d], kept_.strides[operand][d]);
  }
  for (size_t d = 0; d < reduced_.rank(); ++d) {
    add_term(text, fmt::format("r{}", d), reduced_.strides[operand][d]);
  }
  return text.empty() ? "0" : text;
}

// Row-major number of the place in some dims.
std::string CLoopPrinter::number(const CLoopDims& dims, const std::vector<std::string>& places) {
  std::string text;
  int64_t step = 1;
  for (size_t d = dims.rank(); d-- > 0; step *= dims.sizes[d]) add_term(text, places[d], step);
  return text.empty() ? "0" : text;
}
std::string CLoopPrinter::row_number() const { return number(kept_, places_); }
std::string CLoopPrinter::number_in_row() const {
  std::vector<std::string> places;
  for (size_t d = 0; d < reduced_.rank(); ++d) places.push_back(fmt::format("r{}", d));
  return number(reduced_, places);
}
int64_t CLoopPrinter::row_length() const {
  int64_t out = 1;
  for (const int64_t size : reduced_.sizes) out *= size;
  return out;
}

// ---- registers

bool CLoopPrinter::is_column(RegId r) const { return across_ && at(r).level == Level::kRow; }
std::string CLoopPrinter::name(RegId r) const {
  return is_column(r) ? fmt::format("v{}[j]", r) : fmt::format("v{}", r);
}

std::string CLoopPrinter::expression(const Instruction& i) const {
  switch (i.opcode) {
    case Opcode::kLoad:
      return fmt::format("{}[{}]", operands_[operand_of(i)], index(operand_of(i)));
    case Opcode::kConstant: return c_number(i.dtype, i.bits);
    case Opcode::kPosition:
      return fmt::format("({}) * {} + {}", row_number(), row_length(), number_in_row());
    case Opcode::kRowPosition: return row_number();
    case Opcode::kReducedPosition: return number_in_row();
    default: return c_call(program_, i, [this](RegId r) { return name(r); });
  }
}

void CLoopPrinter::statement(RegId r) {
  const Instruction& i = at(r);
  if (stores(i)) {
    const size_t b = operand_of(i);
    line(fmt::format("{}[{}] = {};", operands_[b], index(b), name(i.operands[0])));
  } else if (scans(i)) {
    line(fmt::format("const m_{0} v{1} = m_running_{0}(&c{1}, &e{1}, {2}, {3} == 0);",
                     short_name(i.dtype), r, name(i.operands[0]), number_in_row()));
  } else if (is_column(r)) {
    line(fmt::format("v{}[j] = {};", r, expression(i)));
  } else {
    line(fmt::format("const m_{} v{} = {};", short_name(i.dtype), r, expression(i)));
  }
}

void CLoopPrinter::statements(const Wanted& wanted) {
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (wanted(r)) statement(r);
  }
}
bool CLoopPrinter::any(const Wanted& wanted) const {
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (wanted(r)) return true;
  }
  return false;
}

void CLoopPrinter::uniforms() {
  statements([&](RegId r) { return at(r).level == Level::kUniform && !stores(at(r)); });
}

// ---- flat

void CLoopPrinter::flat() {
  for (size_t d = 0; d < kept_.rank(); ++d) open_loop(places_[d], kept_.sizes[d]);
  statements([&](RegId r) { return at(r).level != Level::kUniform || stores(at(r)); });
  for (size_t d = 0; d < kept_.rank(); ++d) close();
}

// ---- rows

// Columns lie side by side where rows do not: their order of sums asks for no lanes.
bool CLoopPrinter::goes_across() const {
  if (kept_.rank() == 0 || reduced_.rank() == 0) return false;
  int along_rows = 0, along_columns = 0;
  for (const Instruction& i : program_.code) {
    if (scans(i)) return false;
    const bool ordered = i.opcode == Opcode::kReduceSum || i.opcode == Opcode::kReduceProd;
    if (reduces(i) && ordered && i.order == tile::Order::kLanes) return false;
    if (i.level != Level::kLane || (i.opcode != Opcode::kLoad && !stores(i))) continue;
    along_rows += reduced_.strides[operand_of(i)].back() == 1 ? 1 : 0;
    along_columns += kept_.strides[operand_of(i)].back() == 1 ? 1 : 0;
  }
  return along_columns > along_rows;
}

void CLoopPrinter::rows() {
  const size_t loops = kept_.rank() - (across_ ? 1 : 0);
  for (size_t d = 0; d < loops; ++d) open_loop(places_[d], kept_.sizes[d]);
  if (across_) open_columns();
  sections();
  if (across_) close();
  for (size_t d = 0; d < loops; ++d) close();
}

void CLoopPrinter::sections() {
  const int32_t last = section_.empty() ? 0 : *std::max_element(section_.begin(), section_.end());
  for (int32_t s = 0; s <= last; ++s) section(s);
}

void CLoopPrinter::open_columns() {
  const int64_t size = kept_.sizes.back();
  if (parallel_ && !is_open_) line("M_PARALLEL");
  open(fmt::format("for (m_i64 j0 = 0; j0 < {}; j0 += {}) {{", size, kColumns));
  columns(size);
}

void CLoopPrinter::columns(int64_t size) {
  line(fmt::format("const int n = {0} - j0 < {1} ? (int)({0} - j0) : {1};", size, kColumns));
  places_.back() = "(j0 + j)";
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (!is_column(r) || stores(at(r))) continue;
    line(fmt::format("m_{} v{}[{}];", short_name(at(r).dtype), r, kColumns));
  }
}

// ---- units

// Opens what does one unit after the other, with the places of all kept dims; the last dim is cut
// into pieces, or is not (0). Returns how many units there are.
int64_t CLoopPrinter::open_units(int64_t piece) {
  const bool is_cut = piece > 0 && kept_.rank() > 0;
  const int64_t size = is_cut ? kept_.sizes.back() : 1;
  const int64_t pieces = is_cut ? (size + piece - 1) / piece : 1;
  const size_t outer = kept_.rank() - (is_cut ? 1 : 0);
  int64_t units = pieces;
  for (size_t d = 0; d < outer; ++d) units *= kept_.sizes[d];
  open("for (m_i64 unit = begin; unit < end; ++unit) {");
  if (is_cut) {
    line(fmt::format("const m_i64 {} = unit % {} * {};", across_ ? "j0" : "first", pieces, piece));
  }
  outer_places("unit", pieces, outer);
  if (is_cut && across_) columns(size);
  if (is_cut && !across_) {
    line(fmt::format("const m_i64 last = {0} - first < {1} ? {0} : first + {1};", size, piece));
  }
  return units;
}

// The places of the first `dims` kept dims where a number counts `below` for each of them.
void CLoopPrinter::outer_places(const char* number, int64_t below, size_t dims) {
  for (size_t d = dims; d-- > 0; below *= kept_.sizes[d]) {
    const std::string rest = below == 1 ? number : fmt::format("{} / {}", number, below);
    line(d == 0 ? fmt::format("const m_i64 k0 = {};", rest)
                : fmt::format("const m_i64 k{} = {} % {};", d, rest, kept_.sizes[d]));
    line(fmt::format("(void)k{};", d));
  }
}

void CLoopPrinter::row_statements(const Wanted& wanted) {
  if (!any(wanted)) return;
  if (across_) open("for (int j = 0; j < n; ++j) {");
  statements(wanted);
  if (across_) close();
}

// Row values, one pass over the lanes, the reductions' results, row outputs.
void CLoopPrinter::section(int32_t s) {
  row_statements(
      [&](RegId r) { return at(r).level == Level::kRow && section_[r] == s && !reduces(at(r)); });
  const auto is_root = [&](RegId r) {
    return section_[r] == s && (reduces(at(r)) || (stores(at(r)) && at(r).level == Level::kLane));
  };
  if (!any(is_root)) return;
  const std::vector<bool> needed = needed_lanes(is_root);
  std::vector<RegId> states;
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (is_root(r) && reduces(at(r))) states.push_back(r);
  }
  for (const RegId r : states) begin(r);
  open_lanes(needed, states);
  statements([&](RegId r) {
    return at(r).level == Level::kLane && (needed[r] || (stores(at(r)) && section_[r] == s));
  });
  close_lanes(states);
  for (const RegId r : states) finish(r);
}

// Lane values that a section computes, anew if an earlier one has.
std::vector<bool> CLoopPrinter::needed_lanes(const Wanted& is_root) const {
  std::vector<bool> needed(program_.code.size(), false);
  for (size_t r = needed.size(); r-- > 0;) {
    const bool is_kept = needed[r] && !computes(static_cast<RegId>(r));
    if (!is_root(static_cast<RegId>(r)) && (!needed[r] || is_kept)) continue;
    for (const RegId operand : program_.code[r].operands) {
      if (operand != tile::kNoReg && at(operand).level == Level::kLane) needed[operand] = true;
    }
  }
  return needed;
}

void CLoopPrinter::open_lanes(const std::vector<bool>& needed, const std::vector<RegId>& states) {
  open("{");
  for (RegId r = 0; r < program_.code.size(); ++r) {
    if (!needed[r] || !scans(at(r))) continue;
    // the sum so far, and what rounding took from it
    const DType sum = at(r).dtype == DType::kFloat32 ? DType::kFloat64 : at(r).dtype;
    line(fmt::format("m_{0} c{1} = 0, e{1} = 0;", short_name(sum), r));
  }
  for (const RegId r : states) {
    line(fmt::format("m_{} t{}[{}];", short_name(at(at(r).operands[0]).dtype), r,
                     across_ ? kColumns : cut_.chunk));
  }
  const size_t rank = reduced_.rank();
  const size_t outer = across_ || rank == 0 ? rank : rank - 1;
  for (size_t d = 0; d < outer; ++d) {
    const std::string r = fmt::format("r{}", d);
    open(fmt::format("for (m_i64 {0} = 0; {0} < {1}; ++{0}) {{", r, reduced_.sizes[d]));
  }
  if (across_) {
    open("for (int j = 0; j < n; ++j) {");
  } else {
    open_row(states, rank == 0 ? 1 : reduced_.sizes.back());
  }
}

// The innermost loop of a row, in chunks where they are reduced.
void CLoopPrinter::open_row(const std::vector<RegId>& states, int64_t size) {
  const std::string r = fmt::format("r{}", std::max<size_t>(reduced_.rank(), 1) - 1);
  if (states.empty()) {
    return open(fmt::format("for (m_i64 {0} = 0; {0} < {1}; ++{0}) {{", r, size));
  }
  const int64_t chunk = std::min(cut_.chunk, std::max<int64_t>(size, 1));
  open(fmt::format("for (m_i64 c = 0; c < {}; c += {}) {{", size, chunk));
  if (size % chunk == 0) {
    line(fmt::format("const int n = {};", chunk));
  } else {
    line(fmt::format("const int n = {0} - c < {1} ? (int)({0} - c) : {1};", size, chunk));
  }
  open("for (int j = 0; j < n; ++j) {");
  line(fmt::format("const m_i64 {0} = c + j;", r));
  line(fmt::format("(void){};", r));
}

void CLoopPrinter::close_lanes(const std::vector<RegId>& states) {
  for (const RegId r : states) line(fmt::format("t{}[j] = {};", r, name(at(r).operands[0])));
  close();
  for (const RegId r : states) take(r);
  if (!across_ && !states.empty()) close();
  const size_t rank = reduced_.rank();
  for (size_t d = across_ || rank == 0 ? 0 : 1; d < rank; ++d) close();
  close();
}

// ---- reductions

std::string CLoopPrinter::state(RegId r) const {
  return c_state(at(r).opcode, at(at(r).operands[0]).dtype);
}
int CLoopPrinter::width(const Instruction& i) {
  return i.order == tile::Order::kLanes ? static_cast<int>(tile::kLanesWidth) : 1;
}

void CLoopPrinter::begin(RegId r) {
  line(fmt::format("{0}_{1} s{2};", state(r), across_ ? "rows" : "state", r));
  line(fmt::format("{0}_begin{1}(&s{2});", state(r), across_ ? "_rows" : "", r));
}

// What a chunk or a row of columns holds.
void CLoopPrinter::take(RegId r) {
  const Instruction& i = at(r);
  if (across_) return line(fmt::format("{0}_take_row(&s{1}, t{1}, n);", state(r), r));
  if (finds_place(i.opcode)) {
    return line(fmt::format("{0}_take_all(&s{1}, t{1}, n);", state(r), r));
  }
  const int64_t block = i.order == tile::Order::kLanes ? tile::kLanesBlock : tile::kRowsBlock;
  line(fmt::format("{0}_take_all(&s{1}, t{1}, n, {2}, {3});", state(r), r, width(i), block));
}

void CLoopPrinter::finish(RegId r) {
  const Instruction& i = at(r);
  const DType from = at(i.operands[0]).dtype;
  const std::string identity = finds_place(i.opcode) ? "" : c_identity(i.opcode, from);
  if (across_) {
    const std::string rest = identity.empty() ? "" : ", " + identity;
    return line(fmt::format("{0}_end_rows(&s{1}, v{1}, n{2});", state(r), r, rest));
  }
  if (finds_place(i.opcode)) return line(fmt::format("const m_i64 v{0} = s{0}.at;", r));
  line(fmt::format("const m_{0} v{1} = {2}_end(&s{1}, {3}, {4});", short_name(i.dtype), r, state(r),
                   width(i), identity));
}

core::Result<std::string> print_c_loop(const plan::LoopCall& loop,
                                       std::span<const std::string> operands, bool parallel,
                                       std::set<std::string>& definitions) {
  MITHRIL_RETURN_IF_ERROR(tile::verify(loop.program));
  return CLoopPrinter(loop, operands, parallel).run(definitions);
}

core::Result<CLoopUnits> print_c_loop_units(const plan::LoopCall& loop,
                                            std::span<const std::string> operands,
                                            const CLoopCut& cut,
                                            std::set<std::string>& definitions) {
  MITHRIL_RETURN_IF_ERROR(tile::verify(loop.program));
  if (cut.is_vectored) return CVectorLoop(loop, operands, cut).units(definitions);
  if (CBlockLoop block(loop, operands, cut); cut.threads > 0 && block.fits()) {
    return block.block_units(definitions);
  }
  return CLoopPrinter(loop, operands, false, cut).units(definitions);
}

core::Result<std::string> print_c_loop_stretch(const plan::LoopCall& loop,
                                               std::span<const std::string> operands,
                                               const CLoopCut& cut,
                                               std::set<std::string>& definitions) {
  MITHRIL_RETURN_IF_ERROR(tile::verify(loop.program));
  if (cut.is_vectored) return CVectorLoop(loop, operands, cut).stretch(definitions);
  return CLoopPrinter(loop, operands, false, cut).stretch(definitions);
}

}  // namespace mithril::emit
