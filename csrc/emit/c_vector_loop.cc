#include "emit/c_vector_loop.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "emit/c_instruction.h"
#include "tile/math_coefficients.h"
#include "tile/reduction.h"

namespace mithril::emit {

using core::DType;
using core::short_name;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

namespace {

constexpr int64_t kChunk = 256;                        // elements between stages
constexpr int64_t kShort = 64;                         // elements that are worth no stages
constexpr int64_t kStreamedBytes = int64_t{16} << 20;  // of operands that no cache holds
constexpr int64_t kLongestKept = 8192;                 // elements of a row
constexpr int64_t kWorthKeeping = 8;                   // instructions
constexpr int kMostLookups = 32, kMostStages = 2;

bool looks_up(const Instruction& i) {
  return i.opcode == Opcode::kLookup && i.level == Level::kLane;
}

// Rare cases apart want chunks of elements, and rows have none.
tile::Expansion expansion_of(const plan::LoopCall& loop) {
  bool is_plain = loop.reduced.empty() && !tile::is_reducing(loop.program);
  for (const Instruction& i : loop.program.code) {
    const bool is_macro = tile::info(i.opcode).family == tile::Family::kMacro;
    is_plain = is_plain && !(is_macro && i.level != Level::kLane);
  }
  return {.scale = false, .extern_far = is_plain};
}

}  // namespace

CVectorLoop::CVectorLoop(const plan::LoopCall& loop, std::span<const std::string> operands,
                         const CLoopCut& cut)
    : CLoopPrinter(loop, operands, false, cut, expansion_of(loop)),
      exact_(tile::expand(loop.program, {.scale = false})),
      buffered_(program_.outputs.size(), false) {
  const bool is_short = kept_.rank() == 0 || kept_.sizes.back() < kShort;
  if (!has_rows() && is_short) program_ = exact_;
  has_rare_ = std::any_of(program_.code.begin(), program_.code.end(),
                          [&](const Instruction& i) { return is_far(i); });
  for (Lanes* lanes : {&looked_up_, &kept_lanes_, &is_kept_now_}) {
    lanes->assign(std::max(program_.code.size(), exact_.code.size()), false);
  }
}

// ---------------------------------------------------------------- texts

void CVectorLoop::define(const Instruction& i, std::set<std::string>& definitions) const {
  const DType from = at(i.operands[0]).dtype;
  const bool is_wide = from == DType::kFloat32 || from == DType::kFloat64;
  if (across_ || finds_place(i.opcode) || !is_wide) return CLoopPrinter::define(i, definitions);
  const bool commutes = i.opcode == Opcode::kReduceMax || i.opcode == Opcode::kReduceMin;
  const std::string_view type = short_name(from);
  definitions.insert(c_reduction(i.opcode, from));
  definitions.insert(fmt::format("M_TAKE_VECTORS({0}, m_{1}, {2}16, m_{3}_vectors_{1}, {4})\n",
                                 c_state(i.opcode, from), type,
                                 from == DType::kFloat32 ? "float" : "double",
                                 tile::info(tile::combining(i.opcode)).text, commutes ? 1 : 0));
}

bool CVectorLoop::is_far(const Instruction& i) const {
  return i.opcode == Opcode::kGeluFar || i.opcode == Opcode::kGeluTanhFar;
}

std::string CVectorLoop::expression(const Instruction& i) const {
  const auto r = static_cast<size_t>(&i - program_.code.data());
  if (looked_up_[r]) return fmt::format("l{}[j]", r);
  if (is_kept_now_[r]) return fmt::format("kept{}[{}]", r, place_);
  if (is_far(i)) return name(i.operands[1]);
  return CLoopPrinter::expression(i);
}

void CVectorLoop::statement(RegId r) {
  const Instruction& i = at(r);
  if (stores(i) && buffered_[i.index]) {
    return line(fmt::format("y{}[j] = {};", i.index, name(i.operands[0])));
  }
  CLoopPrinter::statement(r);
  if (kept_lanes_[r] && !is_kept_now_[r]) line(fmt::format("kept{0}[{1}] = v{0};", r, place_));
  if (!is_far(i)) return;
  const float limit = i.opcode == Opcode::kGeluFar ? tile::math::Limits<float>::gelu_near
                                                   : tile::math::Limits<float>::gelu_tanh_near;
  line(fmt::format("is_rare |= !({:.2f}f < m_at_most_f32(v{}, v{}));", limit, i.operands[1],
                   i.operands[0]));
}

/// Chunks of [begin, end), of which all are whole if `size` elements make whole ones.
void CVectorLoop::open_chunks(const std::string& begin, const std::string& end, int64_t size) {
  open(fmt::format("for (m_i64 c = {0}; c < {1}; c += {2}) {{", begin, end, cut_.chunk));
  if (size % cut_.chunk == 0) {
    line(fmt::format("const int n = {};", cut_.chunk));
  } else {
    line(fmt::format("const int n = {0} - c < {1} ? (int)({0} - c) : {1};", end, cut_.chunk));
  }
}

void CVectorLoop::open_elements() {
  line("M_VECTORISED");
  open("for (int j = 0; j < n; ++j) {");
  line(fmt::format("const m_i64 {} = c + j;", place_));
  line(fmt::format("(void){};", place_));
}

void CVectorLoop::declare(const char* prefix, size_t number, DType dtype, int64_t count) {
  line(fmt::format("m_{} {}{}[{}] M_ALIGNED;", short_name(dtype), prefix, number, count));
}

/// Collects the roots and what they need.
CVectorLoop::Lanes CVectorLoop::roots_and_needed(const Wanted& is_root) const {
  Lanes out = needed_lanes(is_root);
  for (RegId r = 0; r < program_.code.size(); ++r) out[r] = out[r] || is_root(r);
  return out;
}

/// Lane values and stores, each behind what it needs.
void CVectorLoop::print_lanes(const Wanted& is_root) {
  const Lanes lanes = roots_and_needed(is_root);
  statements([&](RegId r) {
    return lanes[r] && !reduces(at(r)) && (at(r).level == Level::kLane || stores(at(r)));
  });
}

// ---------------------------------------------------------------- lookups

/// The lookups among lanes; `stages`: how many behind one another there are.
CVectorLoop::Lanes CVectorLoop::lookups_of(const Lanes& lanes, int& stages) const {
  Lanes out(program_.code.size(), false);
  std::vector<int> stage(program_.code.size(), 0);
  for (RegId r = 0; r < program_.code.size(); ++r) {
    for (const RegId operand : at(r).operands) {
      if (operand != tile::kNoReg) stage[r] = std::max(stage[r], stage[operand]);
    }
    out[r] = lanes[r] && looks_up(at(r)) && !looked_up_[r];
    stage[r] += out[r] ? 1 : 0;
    stages = std::max(stages, out[r] ? stage[r] : 0);
  }
  for (RegId r = 0; r < program_.code.size(); ++r) out[r] = out[r] && stage[r] == 1;
  return out;
}

/// All lookups of a chunk that the roots need, stage by stage: places first, then the elements.
void CVectorLoop::look_up(const Wanted& is_root) {
  for (int done = 0; done < kMostStages; ++done) {
    int stages = 0;
    const Lanes lookups = lookups_of(roots_and_needed(is_root), stages);
    const auto count = std::count(lookups.begin(), lookups.end(), true);
    if (stages == 0 || stages + done > kMostStages || count > kMostLookups) return;
    Lanes places(program_.code.size(), false);
    for (RegId r = 0; r < places.size(); ++r) {
      const RegId place = at(r).operands[0];
      if (!lookups[r] || places[place]) continue;
      places[place] = true;
      declare("at", place, DType::kInt32, cut_.chunk);
    }
    open_elements();
    print_lanes([&](RegId r) { return places[r]; });
    for (RegId r = 0; r < places.size(); ++r) {
      if (places[r]) line(fmt::format("at{0}[j] = v{0};", r));
    }
    close();
    for (RegId r = 0; r < places.size(); ++r) {
      if (!lookups[r]) continue;
      declare("l", r, DType::kFloat32, cut_.chunk);
      line(fmt::format("m_lookup(m_table{}, at{}, l{}, n);", at(r).index, at(r).operands[0], r));
      looked_up_[r] = true;
    }
  }
}

// ---------------------------------------------------------------- outputs

// Of the bytes of operands, as the engine decides it.
bool CVectorLoop::is_streamed(const Instruction& store) const {
  const auto bytes_of = [&](size_t b, DType dtype) {
    auto bytes = static_cast<int64_t>(core::size_of(dtype));
    for (const CLoopDims* dims : {&kept_, &reduced_}) {
      for (size_t d = 0; d < dims->rank(); ++d) {
        if (dims->strides[b][d] != 0) bytes *= dims->sizes[d];
      }
    }
    return bytes;
  };
  const size_t inputs = program_.inputs.size(), own = operand_of(store);
  const CLoopDims& along = has_rows() ? reduced_ : kept_;
  if (is_stretch_ || store.level != Level::kLane || along.strides[own].back() != 1) return false;
  int64_t all = 0;
  for (size_t b = 0; b < inputs + program_.outputs.size(); ++b) {
    all += bytes_of(b, b < inputs ? program_.inputs[b] : program_.outputs[b - inputs]);
    if (b < inputs && operands_[b] == operands_[own]) return false;
  }
  return all > kStreamedBytes && bytes_of(own, store.dtype) > kStreamedBytes / 8;
}

/// Declares memory for outputs among the roots that do not go where they belong at once.
void CVectorLoop::choose_buffered(const Wanted& is_root) {
  buffered_.assign(program_.outputs.size(), false);
  for (RegId r = 0; r < program_.code.size(); ++r) {
    const Instruction& i = at(r);
    if (!stores(i) || i.level != Level::kLane || !is_root(r)) continue;
    buffered_[i.index] = has_rare_ || is_streamed(i);
    if (buffered_[i.index]) declare("y", i.index, i.dtype, cut_.chunk);
  }
}

void CVectorLoop::take_out() {
  for (RegId r = 0; r < program_.code.size(); ++r) {
    const Instruction& i = at(r);
    if (!stores(i) || !buffered_[i.index]) continue;
    const size_t own = operand_of(i);
    if (is_streamed(i)) {
      line(fmt::format("{{ const m_i64 {0} = c; m_stream_{1}({2} + {3}, y{4}, n); }}", place_,
                       short_name(i.dtype), operands_[own], index(own), i.index));
    } else {
      open_elements();
      line(fmt::format("{}[{}] = y{}[j];", operands_[own], index(own), i.index));
      close();
    }
  }
}

/// The chunk anew where something in it was rare.
void CVectorLoop::do_rare_ones() {
  open("if (is_rare) {");
  std::swap(program_, exact_);
  const Lanes before = std::exchange(looked_up_, Lanes(looked_up_.size(), false));
  uniforms();
  open_elements();
  statements([&](RegId r) { return at(r).level == Level::kLane; });
  close();
  looked_up_ = before;
  std::swap(program_, exact_);
  close();
}

// ---------------------------------------------------------------- without rows

/// Tells whether elements want more than one loop.
bool CVectorLoop::has_stages() const {
  return has_rare_ || std::any_of(program_.code.begin(), program_.code.end(), [&](const auto& i) {
           return looks_up(i) || (stores(i) && is_streamed(i));
         });
}

void CVectorLoop::elements() {
  const bool is_short = kept_.rank() == 0 || kept_.sizes.back() < kShort;
  if (is_short || !has_stages()) {
    if (!is_short) line("M_VECTORISED");
    return CLoopPrinter::elements();
  }
  place_ = places_.back();
  const Wanted is_root = [&](RegId r) { return stores(at(r)); };
  cut_.chunk = std::min(cut_.chunk, kChunk);
  open_chunks("first", "last", is_stretch_ ? 1 : kept_.sizes.back());
  choose_buffered(is_root);
  if (has_rare_) line("int is_rare = 0;");
  look_up(is_root);
  open_elements();
  print_lanes(is_root);
  close();
  if (has_rare_) do_rare_ones();
  take_out();
  close();
}

// ---------------------------------------------------------------- rows

bool CVectorLoop::is_chunked() const {
  return !across_ && reduced_.rank() > 0 && !any([&](RegId r) { return scans(at(r)); });
}

int32_t CVectorLoop::last_section() const {
  return section_.empty() ? 0 : *std::max_element(section_.begin(), section_.end());
}

CLoopPrinter::Wanted CVectorLoop::roots_of(int32_t s) const {
  return [this, s](RegId r) {
    const Instruction& i = at(r);
    return section_[r] == s && (reduces(i) || (stores(i) && i.level == Level::kLane));
  };
}

/// Counts the instructions that make a lane value of what is loaded.
int64_t CVectorLoop::cost_of(RegId r) const {
  const Lanes lanes = roots_and_needed([r](RegId own) { return own == r; });
  int64_t out = 0;
  for (RegId own = 0; own < lanes.size(); ++own) {
    const Instruction& i = at(own);
    out += lanes[own] && i.level == Level::kLane && tile::info(i.opcode).arity > 0 ? 1 : 0;
  }
  return out;
}

/// Finds what a later section would compute anew, and had better read: the last values that it
/// shares with those before it.
void CVectorLoop::choose_kept() {
  if (reduced_.rank() != 1 || row_length() > kLongestKept) return;
  Lanes before(program_.code.size(), false);
  for (int32_t s = 0; s <= last_section(); ++s) {
    const Wanted is_root = roots_of(s);
    const Lanes lanes = roots_and_needed(is_root);
    for (RegId r = 0; r < lanes.size(); ++r) {
      if (!lanes[r] || before[r]) continue;
      for (const RegId operand : at(r).operands) {
        if (operand == tile::kNoReg || !before[operand] || kept_lanes_[operand]) continue;
        kept_lanes_[operand] = cost_of(operand) >= kWorthKeeping;
      }
    }
    for (RegId r = 0; r < lanes.size(); ++r) {
      before[r] = before[r] || (lanes[r] && at(r).level == Level::kLane && !stores(at(r)));
    }
  }
  for (RegId r = 0; r < before.size(); ++r) {
    if (kept_lanes_[r]) declare("kept", r, at(r).dtype, row_length());
  }
}

void CVectorLoop::section(int32_t s) {
  if (!is_chunked()) return CLoopPrinter::section(s);
  if (s == 0) choose_kept();
  row_statements(
      [&](RegId r) { return at(r).level == Level::kRow && section_[r] == s && !reduces(at(r)); });
  const Wanted is_root = roots_of(s);
  if (!any(is_root)) return;
  const Lanes lanes = roots_and_needed(is_root);
  std::vector<RegId> states;
  for (RegId r = 0; r < lanes.size(); ++r) {
    if (is_root(r) && reduces(at(r))) states.push_back(r);
  }
  for (const RegId r : states) begin(r);
  open("{");
  const size_t last = reduced_.rank() - 1;
  for (size_t d = 0; d < last; ++d) {
    open(fmt::format("for (m_i64 r{0} = 0; r{0} < {1}; ++r{0}) {{", d, reduced_.sizes[d]));
  }
  place_ = fmt::format("r{}", last);
  open_chunks("0", fmt::format("{}", reduced_.sizes[last]), reduced_.sizes[last]);
  for (const RegId r : states) declare("t", r, at(at(r).operands[0]).dtype, cut_.chunk);
  choose_buffered(is_root);
  look_up(is_root);
  open_elements();
  print_lanes(is_root);
  for (const RegId r : states) line(fmt::format("t{}[j] = {};", r, name(at(r).operands[0])));
  close();
  for (const RegId r : states) take(r);
  take_out();
  for (size_t d = 0; d <= last; ++d) close();
  close();
  for (const RegId r : states) finish(r);
  looked_up_.assign(looked_up_.size(), false);
  for (RegId r = 0; r < lanes.size(); ++r)
    is_kept_now_[r] = kept_lanes_[r] && (is_kept_now_[r] || lanes[r]);
}

}  // namespace mithril::emit
