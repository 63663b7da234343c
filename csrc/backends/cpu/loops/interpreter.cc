#include "backends/cpu/loops/interpreter.h"

#include <algorithm>

#include "backends/cpu/jit/compile.h"
#include "backends/cpu/loops/tile_code.h"
#include "backends/cpu/schedule/schedule.h"
#include "core/checked.h"
#include "core/rounding.h"
#include "tile/expand.h"

namespace mithril::cpu {

using tile::Level;

namespace {

const IsaTable& table_of([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::isa_table();
  if (isa == Isa::kAvx2) return avx2::isa_table();
#endif
  return generic::isa_table();
}

constexpr int64_t kBlockBytes = 32 * 1024;  // of lane slots: most of the first-level cache
constexpr int64_t kPoints = 1024;           // most of a tile
constexpr int64_t kCompiledPoints = 4096;  // … where one call does more: several instructions, rows
constexpr int64_t kShortRow = 16;
constexpr int64_t kManyRows = 64;
// Of the interpreter's size: each unit fills again what is the same in all tiles, but small loops
// are to be shared by a few threads.
constexpr int64_t kFewestTiles = 4, kMostTiles = 64;
constexpr int64_t kUnits = 16;
constexpr int64_t kRowsAcross = 256;  // rows of a kRowAcross tile
// What a core may call its own of the last cache; beyond, a plain store reads the line first.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Merges dims that every operand walks through alike.
struct Dims {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // by operand

  static Dims collapse(std::span<const int64_t> sizes,
                       const std::vector<std::vector<int64_t>>& strides) {
    Dims out;
    out.strides.resize(strides.size());
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      const bool merges = !out.sizes.empty() && out.continues(strides, d, sizes[d]);
      if (merges) {
        out.sizes.back() *= sizes[d];
      } else {
        out.sizes.push_back(sizes[d]);
      }
      for (size_t k = 0; k < strides.size(); ++k) {
        if (merges) out.strides[k].pop_back();
        out.strides[k].push_back(strides[k][d]);
      }
    }
    return out;
  }

  bool continues(const std::vector<std::vector<int64_t>>& from, size_t d, int64_t size) const {
    for (size_t k = 0; k < from.size(); ++k) {
      if (strides[k].back() != from[k][d] * size) return false;
    }
    return true;
  }

  bool is_contiguous(size_t k) const {
    return sizes.empty() || (sizes.size() == 1 && strides[k][0] == 1);
  }
  bool is_single(size_t k) const {
    return std::all_of(strides[k].begin(), strides[k].end(), [](int64_t s) { return s == 0; });
  }
};

std::vector<int64_t> row_major(std::span<const int64_t> sizes, int64_t unit) {
  std::vector<int64_t> out(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; unit *= sizes[d]) out[d] = unit;
  return out;
}

int64_t levels(int64_t blocks) {
  int64_t depth = 2;
  for (; blocks > 1; blocks = (blocks + 1) / 2) ++depth;
  return depth;
}

class LoopMaker {
 public:
  LoopMaker(const TileKernel& kernel, std::span<const int64_t> kept,
            std::span<const int64_t> reduced, std::span<const OperandStrides> operands)
      : program_(kernel.code().program), code_(kernel.code()) {
    header_.mode = static_cast<int64_t>(code_.compiles ? Mode::kCompiled : Mode::kInterpreted);
    header_.kept = core::product(kept);
    header_.reduced = core::product(reduced);
    gather(kept, reduced, operands);
    kept_ = Dims::collapse(kept, kept_strides_);
    reduced_ = Dims::collapse(reduced, reduced_strides_);
  }

  LoopCall run() {
    choose_layout();
    if (mode() == Mode::kCompiled && streams_whole_lines()) {
      header_.mode = static_cast<int64_t>(Mode::kStreaming);
    }
    header_.kept_dims = static_cast<int64_t>(kept_.sizes.size());
    header_.reduced_dims = static_cast<int64_t>(reduced_.sizes.size());
    header_.operands = static_cast<int64_t>(kept_strides_.size());
    LoopCall loop;
    loop.params.resize(static_cast<size_t>(kHeaderWords));
    append(loop.params, kept_.sizes);
    append(loop.params, reduced_.sizes);
    for (size_t k = 0; k < kept_strides_.size(); ++k) {
      loop.params.push_back(flags(k));
      append(loop.params, kept_.strides[k]);
      append(loop.params, reduced_.strides[k]);
    }
    loop.scratch_bytes = place_slots(loop.params);
    std::copy_n(reinterpret_cast<const int64_t*>(&header_), kHeaderWords, loop.params.begin());
    loop.units = header_.kept == 0 ? 0 : core::ceil_div(header_.kept, header_.unit);
    if (!code_.reducing && header_.reduced == 0) loop.units = 0;
    loop.interpreted = why_interpreted();
    return loop;
  }

 private:
  static void append(std::vector<int64_t>& to, const std::vector<int64_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  const char* why_interpreted() const {
    if (!schedule().compiled.empty()) return nullptr;
    if (!jit::is_on(code_.isa)) {
      return "machine code is off: by MITHRIL_JIT=0, by the system, or for want of AVX2";
    }
    const auto scales = [](const auto& i) { return i.opcode == tile::Opcode::kScale; };
    const bool is_known = std::none_of(program_.code.begin(), program_.code.end(), scales);
    if (!code_.compiles && is_known) return "a single instruction, for which its loop is as good";
    if (mode() == Mode::kInterpreted)
      return "many short rows, which the interpreter takes together";
    return "none of its ops has machine code";
  }

  Mode mode() const { return static_cast<Mode>(header_.mode); }

  const TileSchedule& schedule() const {
    return code_.schedule(static_cast<Layout>(header_.layout), header_.recompute != 0, mode());
  }

  void gather(std::span<const int64_t> kept, std::span<const int64_t> reduced,
              std::span<const OperandStrides> operands) {
    const size_t inputs = program_.inputs.size();
    for (size_t k = 0; k < operands.size(); ++k) {
      const auto index = static_cast<uint32_t>(k < inputs ? k : k - inputs);
      const Level level = k < inputs ? input_level(program_, index) : output_level(program_, index);
      const bool row = level == Level::kRow || operands[k].reduced.empty();
      kept_strides_.emplace_back(operands[k].kept.begin(), operands[k].kept.end());
      reduced_strides_.emplace_back(reduced.size(), 0);
      if (!row)
        reduced_strides_.back().assign(operands[k].reduced.begin(), operands[k].reduced.end());
    }
    // kPosition, kRowPosition, kReducedPosition.
    kept_strides_.push_back(row_major(kept, header_.reduced));
    reduced_strides_.push_back(row_major(reduced, 1));
    kept_strides_.push_back(row_major(kept, 1));
    reduced_strides_.emplace_back(reduced.size(), 0);
    kept_strides_.emplace_back(kept.size(), 0);
    reduced_strides_.push_back(row_major(reduced, 1));
    drop_unread_positions();
  }

  // Positions that nobody reads must not keep dims apart.
  void drop_unread_positions() {
    const size_t first = kept_strides_.size() - kPseudoCount;
    const tile::Opcode opcodes[] = {tile::Opcode::kPosition, tile::Opcode::kRowPosition,
                                    tile::Opcode::kReducedPosition};
    for (size_t p = 0; p < kPseudoCount; ++p) {
      const bool read = std::any_of(program_.code.begin(), program_.code.end(),
                                    [&](const auto& i) { return i.opcode == opcodes[p]; });
      if (read) continue;
      std::fill(kept_strides_[first + p].begin(), kept_strides_[first + p].end(), 0);
      std::fill(reduced_strides_[first + p].begin(), reduced_strides_[first + p].end(), 0);
    }
  }

  int64_t lane_bytes(const TileSchedule& schedule) const {
    int64_t bytes = 0;
    for (const Slot& slot : schedule.slots) bytes += slot.level == Level::kLane ? slot.size : 0;
    return std::max<int64_t>(bytes, 1);
  }

  // Points of a tile where lane values outlive their section.
  int64_t block(Layout layout) const {
    const TileSchedule& schedule = code_.schedule(layout, false, mode());
    const bool calls = schedule.compiled.empty() && layout != Layout::kRowInside;
    const int64_t most = calls ? kPoints : kCompiledPoints;
    return std::clamp<int64_t>(kBlockBytes / lane_bytes(schedule) / 64 * 64, 256, most);
  }

  void choose_layout() {
    if (!code_.reducing) return choose_pointwise();
    if (code_.rows_order || (!code_.lanes_order && prefers_across())) return choose_across();
    choose_inside();
  }

  // Reductions of any order: along what lies side by side.
  bool prefers_across() const {
    if (header_.kept < 2 || kept_.sizes.empty() || reduced_.sizes.empty()) return false;
    int64_t votes = 0;
    for (size_t k = 0; k < program_.inputs.size(); ++k) {
      if (input_level(program_, static_cast<uint32_t>(k)) != Level::kLane) continue;
      votes += kept_.strides[k].back() == 1 ? 1 : 0;
      votes -= reduced_.strides[k].back() == 1 ? 1 : 0;
    }
    return votes > 0;
  }

  void choose_pointwise() {
    header_.layout = static_cast<int64_t>(Layout::kPointwise);
    const int64_t most = block(Layout::kPointwise);
    header_.tile_rows = 1;
    header_.tile_r = std::min(most, std::max<int64_t>(header_.kept, 1));
    if (repeats_last_dim() && kept_.sizes.back() <= most) {
      periodic_ = true;
      header_.tile_r = std::min(most / kept_.sizes.back() * kept_.sizes.back(), header_.kept);
    }
    header_.capacity = header_.tile_r;
    header_.unit = header_.tile_r * tiles_of_unit(header_.kept, most);
  }

  // For `points` in all, where a tile may have `most`.
  int64_t tiles_of_unit(int64_t points, int64_t most) const {
    const int64_t tile = std::min(most, kPoints);
    const int64_t unit = std::clamp(points / kUnits, kFewestTiles * tile, kMostTiles * tile);
    return std::max<int64_t>(1, unit / header_.capacity);
  }

  // A bias: tiles of whole periods make its block the same in each.
  bool repeats_last_dim() const {
    if (kept_.sizes.size() < 2 || header_.kept == 0) return false;
    for (size_t k = 0; k < program_.inputs.size(); ++k) {
      if (is_periodic(k)) return true;
    }
    return false;
  }
  bool is_periodic(size_t k) const {
    const std::vector<int64_t>& strides = kept_.strides[k];
    return strides.back() != 0 &&
           std::all_of(strides.begin(), strides.end() - 1, [](int64_t s) { return s == 0; });
  }

  void choose_inside() {
    header_.layout = static_cast<int64_t>(Layout::kRowInside);
    // Compiled steps go row by row, the interpreter's go through all rows of a tile at once.
    if (header_.reduced < kShortRow && header_.kept > kManyRows) {
      header_.mode = static_cast<int64_t>(Mode::kInterpreted);
    }
    const int64_t r = std::max<int64_t>(header_.reduced, 1), most = block(Layout::kRowInside);
    header_.recompute = r > tile::kLanesBlock ? 1 : 0;
    header_.tile_r = std::min(r, tile::kLanesBlock);
    header_.tile_rows = std::clamp<int64_t>(most / r, 1, std::max<int64_t>(header_.kept, 1));
    header_.capacity = header_.tile_rows * header_.tile_r;
    header_.unit = header_.tile_rows * tiles_of_unit(header_.kept * header_.reduced, most);
    header_.depth = levels(core::ceil_div(r, tile::kLanesBlock));
  }

  void choose_across() {
    header_.layout = static_cast<int64_t>(Layout::kRowAcross);
    const int64_t r = std::max<int64_t>(header_.reduced, 1), most = block(Layout::kRowAcross);
    header_.tile_rows = std::min(kRowsAcross, std::max<int64_t>(header_.kept, 1));
    header_.recompute = r * header_.tile_rows > 16 * most ? 1 : 0;
    const int64_t fitting = std::max<int64_t>(1, most / header_.tile_rows);
    header_.tile_r = header_.recompute != 0 ? std::min(r, fitting) : r;
    header_.capacity = header_.tile_rows * header_.tile_r;
    header_.unit = header_.tile_rows;
    header_.depth = levels(core::ceil_div(r, tile::kRowsBlock));
  }

  int64_t flags(size_t k) const {
    const bool across = header_.layout == static_cast<int64_t>(Layout::kRowAcross);
    const bool pointwise = header_.layout == static_cast<int64_t>(Layout::kPointwise);
    const Dims& inner = across || pointwise ? kept_ : reduced_;
    const Dims& outer = across ? reduced_ : kept_;
    int64_t out = 0;
    if (inner.is_contiguous(k)) {
      out |= kInnerContiguous;
      const int64_t length = across ? header_.kept : header_.reduced;
      const bool chained =
          outer.sizes.empty() || (outer.sizes.size() == 1 && outer.strides[k][0] == length);
      if (!pointwise && chained) out |= kOuterChained;
    }
    if (kept_.is_contiguous(k)) out |= kKeptContiguous;
    if (kept_.is_single(k) && reduced_.is_single(k)) {
      out |= kSingle;
    } else if (k < program_.inputs.size() && is_invariant(k)) {
      out |= kInvariant;
    }
    if (is_streamed(k)) out |= kStreamed;
    return out;
  }

  // Nor do caches hold several outputs that are too large together. Rows that lie in parts are
  // stored in parts, whose lines are whole more seldom.
  bool is_streamed(size_t k) const {
    const size_t inputs = program_.inputs.size(), outputs = program_.outputs.size();
    if (k < inputs || k >= inputs + outputs) return false;
    const bool inside = header_.layout == static_cast<int64_t>(Layout::kRowInside);
    if (inside && !reduced_.is_contiguous(k)) return false;
    double all = 0;
    for (size_t output = 0; output < outputs; ++output) all += bytes_of(output);
    return all > kStreamedBytes && bytes_of(k - inputs) > kStreamedBytes / 8;
  }
  double bytes_of(size_t output) const {
    const bool row = output_level(program_, static_cast<uint32_t>(output)) == Level::kRow;
    const auto size = static_cast<double>(core::size_of(program_.outputs[output]));
    const auto rows = static_cast<double>(header_.kept);
    return size * rows * (row ? 1 : static_cast<double>(header_.reduced));
  }

  // Machine code stores vectors past the caches where all lie in lines of their own.
  bool streams_whole_lines() const {
    constexpr int64_t kLine = 16;  // elements of the smallest type that it streams
    const auto layout = static_cast<Layout>(header_.layout);
    const int64_t run = layout == Layout::kPointwise ? header_.tile_r : header_.reduced;
    if (layout == Layout::kRowAcross || run % kLine != 0) return false;
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      if (is_streamed(program_.inputs.size() + k)) return true;
    }
    return false;
  }

  bool is_invariant(size_t k) const {
    if (header_.layout == static_cast<int64_t>(Layout::kPointwise))
      return periodic_ && is_periodic(k);
    if (header_.layout != static_cast<int64_t>(Layout::kRowInside)) return false;
    const bool in_place = header_.tile_rows == 1 && reduced_.is_contiguous(k);
    return header_.recompute == 0 && kept_.is_single(k) && header_.reduced > 0 && !in_place;
  }

  // Scratch: pointers of the slots, slots, states.
  size_t place_slots(std::vector<int64_t>& params) {
    const TileSchedule& plan = schedule();
    auto offset = align(static_cast<int64_t>(plan.slots.size()) * 8);
    for (const Slot& slot : plan.slots) {
      params.push_back(offset);
      const int64_t count = slot.level == Level::kUniform ? 1
                            : slot.level == Level::kRow   ? header_.tile_rows
                                                          : header_.capacity;
      offset += align(count * slot.size);
    }
    header_.state_offset = offset;
    // Each state: two counters, then the running value and a stack of `depth` values, with rests.
    const int64_t state = 64 + 2 * (header_.depth + 1) * align(header_.tile_rows * 8);
    return static_cast<size_t>(offset + state * static_cast<int64_t>(plan.reductions.size()));
  }

  const tile::Program& program_;
  const TileKernel::Code& code_;
  LoopHeader header_{};
  std::vector<std::vector<int64_t>> kept_strides_, reduced_strides_;
  Dims kept_, reduced_;
  bool periodic_ = false;
};

bool has_order(const tile::Program& program, tile::Order order) {
  return std::any_of(program.code.begin(), program.code.end(), [&](const tile::Instruction& i) {
    const bool ordered =
        i.opcode == tile::Opcode::kReduceSum || i.opcode == tile::Opcode::kReduceProd;
    return ordered && core::is_float(i.dtype) && i.order == order;
  });
}

}  // namespace

TileKernel::TileKernel() = default;
TileKernel::~TileKernel() = default;

core::Result<std::shared_ptr<const TileKernel>> TileKernel::make(const tile::Program& program,
                                                                 Isa isa, bool compiled) {
  MITHRIL_RETURN_IF_ERROR(tile::verify(program));
  MITHRIL_CHECK(supports(isa), "this machine has no {}", name(isa));
  std::shared_ptr<TileKernel> kernel(new TileKernel());
  auto code = std::make_unique<Code>();
  code->program = tile::widen_halves(program);
  code->table = &table_of(isa);
  code->isa = isa;
  const bool has_jit = compiled && jit::is_on(isa);
  code->compiles = has_jit && jit::can_compile(code->program, jit::kFewestOfLoop);
  code->compiles_blocks = has_jit && jit::can_compile(code->program, 1);
  code->reducing = tile::is_reducing(program);
  code->lanes_order = has_order(program, tile::Order::kLanes);
  code->rows_order = has_order(program, tile::Order::kRows) && !code->lanes_order;
  code->section = tile::sections_of(program);
  kernel->program_ = program;
  kernel->isa_ = isa;
  kernel->function_ = code->table->run;
  kernel->code_ = std::move(code);
  return std::shared_ptr<const TileKernel>(std::move(kernel));
}

const TileSchedule& TileKernel::Code::schedule(Layout layout, bool recompute, Mode mode) const {
  const std::lock_guard lock(mutex_);
  const auto m = static_cast<size_t>(mode);
  const TileSchedule*& entry = made[static_cast<size_t>(layout)][recompute ? 1 : 0][m];
  if (entry != nullptr) return *entry;
  std::shared_ptr<const TileSchedule> schedule;
  const bool may_compile = layout == Layout::kBlock ? compiles_blocks : compiles;
  if (may_compile && mode != Mode::kInterpreted) {
    const bool streams = mode == Mode::kStreaming;
    schedule = jit::compiled_schedule(program, *table, {isa, layout, recompute, streams});
  }
  if (schedule == nullptr) {
    schedule = std::make_shared<const TileSchedule>(make_schedule(program, *table, recompute));
  }
  owned_.push_back(schedule);
  return *(entry = schedule.get());
}

bool TileKernel::can_alias(uint32_t input, uint32_t output) const {
  const Level level = input_level(program_, input);
  if (level != output_level(program_, output)) return false;
  // What was loaded is read where it lies, in any section; a section that reads a lane of one
  // before it may have to load its inputs again.
  std::vector<bool> reads(program_.code.size(), false), lies_there(program_.code.size(), false);
  int32_t stored = 0, read = 0;
  for (size_t at = 0; at < program_.code.size(); ++at) {
    const tile::Instruction& i = program_.code[at];
    const tile::Family family = tile::info(i.opcode).family;
    reads[at] = lies_there[at] = i.opcode == tile::Opcode::kLoad && i.index == input;
    bool stores_it = false;
    for (const tile::RegId r : i.operands) {
      if (r == tile::kNoReg) continue;
      if (lies_there[r] || (reads[r] && program_.code[r].level == Level::kLane)) reads[at] = true;
      if (lies_there[r] && i.opcode == tile::Opcode::kBitcast) lies_there[at] = true;
      if (lies_there[r] && family == tile::Family::kStore) stores_it = true;
    }
    const bool is_own = i.opcode == tile::Opcode::kStore && i.index == output;
    if (is_own) stored = code_->section[at];
    if (!reads[at]) continue;
    // Row outputs are written before the lanes of their section, and what is stored as it was
    // loaded is copied at the end.
    const bool among_lanes = i.level == Level::kLane || family == tile::Family::kReduce;
    const bool is_late = !is_own && (stores_it || (level == Level::kRow && among_lanes));
    read = std::max(read, code_->section[at] + (is_late ? 1 : 0));
  }
  return stored >= read;
}

LoopCall make_loop(const TileKernel& kernel, std::span<const int64_t> kept,
                   std::span<const int64_t> reduced, std::span<const OperandStrides> operands) {
  return LoopMaker(kernel, kept, reduced, operands).run();
}

}  // namespace mithril::cpu
