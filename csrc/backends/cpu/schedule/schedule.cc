#include "backends/cpu/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tile/reduction.h"

namespace mithril::cpu {

using core::DType;
using tile::Family;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

namespace {

class Scheduler {
 public:
  Scheduler(const tile::Program& program, const IsaTable& isa, bool recompute)
      : program_(program),
        isa_(isa),
        recompute_(recompute),
        section_(tile::sections_of(program)),
        slot_(program.code.size(), -1),
        filled_(program.code.size(), -1),
        filled_row_(program.code.size(), -1),
        expanded_(program.code.size(), -1) {}

  /// With compiled steps.
  void fuse_for(const CodeTarget& target, FuseSteps fuse) {
    target_ = target;
    fuse_ = fuse;
  }

  TileSchedule run() {
    const int32_t last = section_.empty() ? 0 : *std::max_element(section_.begin(), section_.end());
    build_setup();
    std::vector<std::vector<TileStep>> rows, lanes;
    std::vector<StepRange> reductions;
    for (int32_t s = 0; s <= last; ++s) {
      const auto first = static_cast<int32_t>(out_.reductions.size());
      build_section(s);
      rows.push_back(std::move(rows_));
      lanes.push_back(std::move(lanes_));
      rows_.clear();
      lanes_.clear();
      reductions.push_back({first, static_cast<int32_t>(out_.reductions.size())});
    }
    if (target_) fuse_(program_, *target_, {setup_, rows, lanes}, out_);
    share_slots(lanes);
    find_hazards(lanes);
    out_.setup = append(setup_);
    for (size_t s = 0; s < rows.size(); ++s) {
      Section section;
      section.rows = append(rows[s]);
      section.lanes = append(lanes[s]);
      section.reductions = reductions[s];
      out_.sections.push_back(section);
    }
    drop_unused_slots();
    return std::move(out_);
  }

 private:
  const Instruction& at(RegId r) const { return program_.code[r]; }
  static int32_t size_of(DType dtype) { return static_cast<int32_t>(core::size_of(dtype)); }

  int32_t new_slot(Level level, DType dtype) {
    out_.slots.push_back({level, size_of(dtype)});
    return static_cast<int32_t>(out_.slots.size() - 1);
  }

  StepRange append(const std::vector<TileStep>& steps) {
    const auto begin = static_cast<int32_t>(out_.steps.size());
    out_.steps.insert(out_.steps.end(), steps.begin(), steps.end());
    return {begin, static_cast<int32_t>(out_.steps.size())};
  }

  int32_t input_count() const { return static_cast<int32_t>(program_.inputs.size()); }
  int32_t pseudo(Pseudo which) const {
    return input_count() + static_cast<int32_t>(program_.outputs.size()) + which;
  }

  // Bits that mean something else in another type are the same buffer.
  bool is_alias(const Instruction& i) const {
    return i.opcode == Opcode::kBitcast && i.dtype != DType::kBool;
  }
  RegId resolve(RegId r) const {
    while (is_alias(at(r))) r = at(r).operands[0];
    return r;
  }

  // ---- operands at a level

  int32_t fill(RegId r, Level level) {
    int32_t& slot = (level == Level::kLane ? filled_ : filled_row_)[r];
    if (slot >= 0) return slot;
    slot = new_slot(level, at(r).dtype);
    TileStep step;
    step.kind = StepKind::kFill;
    step.level = level;
    step.size = size_of(at(r).dtype);
    step.out = slot;
    step.a = slot_[r];
    setup_.push_back(step);
    return slot;
  }

  int32_t expand(RegId r) {
    if (expanded_[r] >= 0) return expanded_[r];
    TileStep step;
    step.kind = StepKind::kExpand;
    step.size = size_of(at(r).dtype);
    step.out = expanded_[r] = new_slot(Level::kLane, at(r).dtype);
    step.a = slot_[r];
    lanes_.push_back(step);
    return step.out;
  }

  int32_t slot_at(RegId unresolved, Level level) {
    const RegId r = resolve(unresolved);
    const Level own = at(r).level;
    if (own == level) return slot_[r];
    return own == Level::kUniform ? fill(r, level) : expand(r);
  }

  // ---- steps

  std::vector<TileStep>& list(Level level) {
    return level == Level::kUniform ? setup_ : level == Level::kRow ? rows_ : lanes_;
  }

  void call(RegId r) {
    const Instruction& i = at(r);
    const size_t arity = tile::info(i.opcode).arity;
    TileStep step;
    step.kind = StepKind::kCall;
    step.level = i.level;
    step.size = size_of(i.dtype);
    Shape shape = Shape::kBoth;
    if (arity == 2 && i.level != Level::kUniform) {
      if (at(resolve(i.operands[0])).level == Level::kUniform) shape = Shape::kFirstSingle;
      if (at(resolve(i.operands[1])).level == Level::kUniform) shape = Shape::kSecondSingle;
    }
    int32_t* const places[3] = {&step.a, &step.b, &step.c};
    for (size_t k = 0; k < arity; ++k) {
      const bool single =
          (k == 0 && shape == Shape::kFirstSingle) || (k == 1 && shape == Shape::kSecondSingle);
      *places[k] = single ? slot_[resolve(i.operands[k])] : slot_at(i.operands[k], i.level);
    }
    const DType from = at(i.operands[arity - 1]).dtype;
    const Opcode opcode = i.opcode == Opcode::kBitcast ? Opcode::kCast : i.opcode;
    step.fn =
        isa_.lane(opcode, i.dtype, opcode == Opcode::kSelect ? i.dtype : from, i.index, shape);
    MITHRIL_CHECK(step.fn != nullptr, "interpreter: no {} of {}", tile::info(i.opcode).text,
                  core::short_name(i.dtype));
    step.out = slot_[r] = new_slot(i.level, i.dtype);
    step.instruction = static_cast<int32_t>(r);
    list(i.level).push_back(step);
  }

  void fetch(RegId r) {
    const Instruction& i = at(r);
    TileStep step;
    step.kind = StepKind::kFetch;
    step.level = i.level;
    step.size = size_of(i.dtype);
    step.out = slot_[r] >= 0 ? slot_[r] : (slot_[r] = new_slot(i.level, i.dtype));
    switch (i.opcode) {
      case Opcode::kPosition: step.index = pseudo(kPositionOperand); break;
      case Opcode::kRowPosition: step.index = pseudo(kRowPositionOperand); break;
      case Opcode::kReducedPosition: step.index = pseudo(kReducedPositionOperand); break;
      default: step.index = static_cast<int32_t>(i.index);
    }
    dedicated_.push_back(step.out);
    list(i.level).push_back(step);
  }

  void uniform_leaf(RegId r) {
    const Instruction& i = at(r);
    TileStep step;
    step.level = Level::kUniform;
    step.out = slot_[r] = new_slot(Level::kUniform, i.dtype);
    step.size = size_of(i.dtype);
    step.kind = StepKind::kConstant;
    step.bits = i.bits;
    if (i.opcode == Opcode::kLoad) {
      step.kind = StepKind::kFetch;
      step.index = static_cast<int32_t>(i.index);
    } else if (i.opcode == Opcode::kScalar) {
      const bool is_double = i.dtype == DType::kFloat64;
      step.kind = StepKind::kScalar;
      step.index = static_cast<int32_t>(i.index);
      step.fn =
          is_double ? nullptr : isa_.lane(Opcode::kCast, i.dtype, DType::kFloat64, 0, Shape::kBoth);
    }
    setup_.push_back(step);
  }

  void reduce(RegId r) {
    const Instruction& i = at(r);
    const DType from = at(i.operands[0]).dtype;
    const bool scans = tile::info(i.opcode).family == Family::kScan;
    Reduction reduction;
    reduction.order = i.order;
    reduction.size = size_of(from);
    reduction.identity = tile::identity_of(i.opcode, from);
    if (scans) {
      reduction.scan = isa_.scan(from);
    } else if (tile::info(i.opcode).rule == tile::Rule::kIndex) {
      reduction.extreme = isa_.extreme(i.opcode, from);
    } else {
      reduction.row_reduce = isa_.row_reduce(i.opcode, from);
      if (i.opcode == tile::Opcode::kReduceSum) reduction.sums = isa_.block_sums(from);
      reduction.combine = isa_.lane(tile::combining(i.opcode), from, from, 0, Shape::kBoth);
    }
    TileStep step;
    step.kind = scans ? StepKind::kScan : StepKind::kReduce;
    step.size = reduction.size;
    step.a = slot_at(i.operands[0], Level::kLane);
    step.index = static_cast<int32_t>(out_.reductions.size());
    step.instruction = static_cast<int32_t>(r);
    const int32_t out = new_slot(i.level, i.dtype);
    slot_[r] = out;
    reduction.out = out;
    if (scans) step.out = out;
    out_.reductions.push_back(reduction);
    lanes_.push_back(step);
  }

  void store(const Instruction& i) {
    const RegId source = resolve(i.operands[0]);
    TileStep step;
    step.kind = StepKind::kStore;
    step.level = i.level;
    step.size = size_of(i.dtype);
    step.index = input_count() + static_cast<int32_t>(i.index);
    step.a = slot_at(i.operands[0], i.level);
    const bool computed = at(source).level == Level::kLane && i.level == Level::kLane &&
                          tile::info(at(source).opcode).arity > 0 &&
                          std::find(bound_.begin(), bound_.end(), step.a) == bound_.end();
    if (computed) {
      bound_.push_back(step.a);
      dedicated_.push_back(step.a);
      TileStep bind = step;
      bind.kind = StepKind::kBind;
      bind.out = step.a;
      bind.a = -1;
      binds_.push_back(bind);
    }
    stores_.push_back(step);
  }

  // ---- sections

  void build_setup() {
    for (RegId r = 0; r < program_.code.size(); ++r) {
      const Instruction& i = at(r);
      if (i.level != Level::kUniform || is_alias(i)) continue;
      tile::info(i.opcode).arity == 0 ? uniform_leaf(r) : call(r);
    }
  }

  // Which lane values section s computes.
  std::vector<bool> needed_lanes(int32_t s) const {
    const size_t n = program_.code.size();
    std::vector<bool> needed(n, false);
    for (size_t r = n; r-- > 0;) {
      const Instruction& i = program_.code[r];
      const Family family = tile::info(i.opcode).family;
      const bool root = (family == Family::kReduce || family == Family::kStore) && section_[r] == s;
      const bool lane = family != Family::kReduce && family != Family::kStore;
      if (!root && !(lane && needed[r])) continue;
      for (const RegId operand : i.operands) {
        if (operand == tile::kNoReg || at(operand).level != Level::kLane) continue;
        if (recompute_ || section_[operand] == s) needed[operand] = true;
      }
    }
    // Without recomputing, everything of this section is computed here, whoever reads it.
    for (size_t r = 0; !recompute_ && r < n; ++r) {
      const Instruction& i = program_.code[r];
      if (i.level == Level::kLane && section_[r] == s && i.opcode != Opcode::kStore)
        needed[r] = true;
    }
    return needed;
  }

  bool is_fetch(const Instruction& i) const {
    return tile::info(i.opcode).family == Family::kLeaf && i.level != Level::kUniform;
  }

  void build_section(int32_t s) {
    const std::vector<bool> needed = needed_lanes(s);
    stores_.clear();
    binds_.clear();
    if (recompute_) {
      std::fill(expanded_.begin(), expanded_.end(), -1);
      bound_.clear();
    }
    for (RegId r = 0; r < program_.code.size(); ++r) {
      const Instruction& i = at(r);
      const bool row = i.level == Level::kRow && section_[r] == s;
      if (is_fetch(i) && (row || needed[r])) fetch(r);
    }
    for (RegId r = 0; r < program_.code.size(); ++r) build_one(r, s, needed[r]);
    lanes_.insert(lanes_.begin(), binds_.begin(), binds_.end());
    for (const TileStep& step : stores_) list(step.level).push_back(step);
  }

  void build_one(RegId r, int32_t s, bool needed) {
    const Instruction& i = at(r);
    const Family family = tile::info(i.opcode).family;
    if (family == Family::kLeaf || is_alias(i) || i.level == Level::kUniform) return;
    if (family == Family::kStore) {
      if (section_[r] == s) store(i);
    } else if (family == Family::kReduce) {
      if (section_[r] == s) reduce(r);
    } else if (family == Family::kScan) {
      if (needed) reduce(r);
    } else if (i.level == Level::kRow ? section_[r] == s : needed) {
      call(r);
    }
  }

  // ---- slots

  /// The slots that a step reads, each once.
  std::vector<int32_t> reads_of(const TileStep& step) const {
    std::vector<int32_t> out;
    if (step.kind == StepKind::kCompiled) out = compiled(step).reads;
    for (const int32_t slot : {step.a, step.b, step.c}) {
      if (slot >= 0) out.push_back(slot);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }
  std::vector<int32_t> writes_of(const TileStep& step) const {
    if (step.kind == StepKind::kCompiled) return compiled(step).writes;
    return step.out >= 0 ? std::vector<int32_t>{step.out} : std::vector<int32_t>{};
  }
  const CompiledStep& compiled(const TileStep& step) const {
    return out_.compiled[static_cast<size_t>(step.index)];
  }

  static std::vector<TileStep*> all(std::vector<std::vector<TileStep>>& lanes) {
    std::vector<TileStep*> steps;
    for (auto& section : lanes) {
      for (TileStep& step : section) steps.push_back(&step);
    }
    return steps;
  }

  // Lane slots of computed values are shared once their last reader has run; `out` may take over an
  // operand's slot, because every function reads an index before writing it.
  void share_slots(std::vector<std::vector<TileStep>>& lanes) {
    const std::vector<TileStep*> steps = all(lanes);
    std::vector<size_t> last(out_.slots.size(), 0);
    for (size_t k = 0; k < steps.size(); ++k) {
      for (const int32_t slot : reads_of(*steps[k])) last[static_cast<size_t>(slot)] = k;
      for (const int32_t slot : writes_of(*steps[k])) last[static_cast<size_t>(slot)] = k;
    }
    std::vector<bool> fixed(out_.slots.size(), false);
    for (const int32_t slot : dedicated_) fixed[static_cast<size_t>(slot)] = true;
    for (const int32_t slot : filled_) {
      if (slot >= 0) fixed[static_cast<size_t>(slot)] = true;
    }
    std::vector<int32_t> renamed(out_.slots.size(), -1);
    std::multimap<int32_t, int32_t> free;  // by element size
    for (size_t k = 0; k < steps.size(); ++k) {
      TileStep& step = *steps[k];
      const std::vector<int32_t> reads = reads_of(step);
      const auto release_reads = [&] {
        for (const int32_t slot : reads) {
          const auto s = static_cast<size_t>(slot);
          const bool is_lane = out_.slots[s].level == Level::kLane;
          if (!fixed[s] && is_lane && last[s] == k) release(free, renamed, slot);
        }
      };
      // Steps that read other indices than they write must not overwrite their operand.
      const bool in_step = step.kind == StepKind::kCall || step.kind == StepKind::kCompiled;
      if (in_step) release_reads();
      for (const int32_t slot : writes_of(step)) rename(slot, fixed, renamed, free);
      if (!in_step) release_reads();
      apply(renamed, step);
    }
    for (Reduction& reduction : out_.reductions) apply(renamed, reduction.out);
  }

  // Whoever runs the schedule has a pointer to each slot.
  void drop_unused_slots() {
    std::vector<int32_t> renamed(out_.slots.size(), -1);
    const auto note = [&](int32_t slot) {
      if (slot >= 0) renamed[static_cast<size_t>(slot)] = 0;
    };
    for (const TileStep& step : out_.steps) {
      for (const int32_t slot : reads_of(step)) note(slot);
      for (const int32_t slot : writes_of(step)) note(slot);
    }
    for (const Reduction& reduction : out_.reductions) note(reduction.out);
    for (const CompiledStep& step : out_.compiled) {
      for (const jit::LaneReduction& reduction : step.program.reductions) note(reduction.slot);
    }
    std::vector<Slot> slots;
    for (size_t s = 0; s < renamed.size(); ++s) {
      if (renamed[s] < 0) continue;
      renamed[s] = static_cast<int32_t>(slots.size());
      slots.push_back(out_.slots[s]);
    }
    out_.slots = std::move(slots);
    for (TileStep& step : out_.steps) apply(renamed, step);
    for (Reduction& reduction : out_.reductions) {
      apply(renamed, reduction.out);
      apply(renamed, reduction.running);
    }
    for (CompiledStep& step : out_.compiled) {
      for (jit::LaneReduction& reduction : step.program.reductions) apply(renamed, reduction.slot);
    }
  }

  static void apply(const std::vector<int32_t>& renamed, int32_t& slot) {
    if (slot >= 0 && renamed[static_cast<size_t>(slot)] >= 0) {
      slot = renamed[static_cast<size_t>(slot)];
    }
  }
  void apply(const std::vector<int32_t>& renamed, TileStep& step) {
    for (int32_t* slot : {&step.a, &step.b, &step.c, &step.out}) apply(renamed, *slot);
    if (step.kind != StepKind::kCompiled) return;
    CompiledStep& to = out_.compiled[static_cast<size_t>(step.index)];
    for (int32_t& slot : to.reads) apply(renamed, slot);
    for (int32_t& slot : to.writes) apply(renamed, slot);
    for (jit::Value& value : to.program.values) apply(renamed, value.slot);
    for (jit::Output& output : to.program.outputs) apply(renamed, output.slot);
  }

  void release(std::multimap<int32_t, int32_t>& free, const std::vector<int32_t>& renamed,
               int32_t slot) {
    const int32_t place = renamed[static_cast<size_t>(slot)];
    free.emplace(out_.slots[static_cast<size_t>(slot)].size, place >= 0 ? place : slot);
  }

  void rename(int32_t slot, const std::vector<bool>& fixed, std::vector<int32_t>& renamed,
              std::multimap<int32_t, int32_t>& free) {
    const auto s = static_cast<size_t>(slot);
    if (fixed[s] || out_.slots[s].level != Level::kLane || renamed[s] >= 0) return;
    const auto found = free.find(out_.slots[s].size);
    renamed[s] = found == free.end() ? slot : found->second;
    if (found != free.end()) free.erase(found);
  }

  // Inputs that are still read after an output's producer has run: if they share memory with the
  // output, it must not be written before they are done with.
  void find_hazards(std::vector<std::vector<TileStep>>& lanes) {
    const std::vector<TileStep*> steps = all(lanes);
    std::vector<int32_t> input_of(out_.slots.size(), -1);
    for (const TileStep* step : steps) {
      if (step->kind == StepKind::kFetch && step->index < input_count()) {
        input_of[static_cast<size_t>(step->out)] = step->index;
      }
    }
    const auto note = [&](int32_t slot) {
      if (input_of[static_cast<size_t>(slot)] < 0) return;
      out_.hazards.push_back(input_of[static_cast<size_t>(slot)]);
    };
    for (size_t k = 0; k < steps.size(); ++k) {
      if (steps[k]->kind != StepKind::kBind) continue;
      size_t producer = k + 1;
      while (!produces(*steps[producer], steps[k]->out)) ++producer;
      steps[k]->partner = static_cast<int32_t>(out_.hazards.size());
      for (size_t later = producer + 1; later < steps.size(); ++later) {
        for (const int32_t slot : reads_of(*steps[later])) note(slot);
        for (const int32_t slot : writes_of(*steps[later])) note(slot);
      }
      steps[k]->hazard_count = static_cast<int32_t>(out_.hazards.size()) - steps[k]->partner;
    }
  }
  bool produces(const TileStep& step, int32_t slot) const {
    if (step.kind == StepKind::kBind) return false;
    const std::vector<int32_t> writes = writes_of(step);
    return std::find(writes.begin(), writes.end(), slot) != writes.end();
  }

  const tile::Program& program_;
  const IsaTable& isa_;
  bool recompute_;
  std::optional<CodeTarget> target_;
  FuseSteps fuse_ = nullptr;
  std::vector<int32_t> section_;
  std::vector<int32_t> slot_, filled_, filled_row_, expanded_;  // of each register
  std::vector<TileStep> setup_, rows_, lanes_, stores_, binds_;
  std::vector<int32_t> bound_, dedicated_;
  TileSchedule out_;
};

}  // namespace

TileSchedule make_schedule(const tile::Program& widened, const IsaTable& isa, bool recompute) {
  return Scheduler(widened, isa, recompute).run();
}

bool is_in_place(const TileSchedule& schedule) {
  if (schedule.compiled.size() != 1) return false;
  const StepRange& lanes = schedule.sections[0].lanes;
  size_t stored = 0, bound = 0;
  for (int32_t s = lanes.begin; s < lanes.end; ++s) {
    switch (schedule.steps[static_cast<size_t>(s)].kind) {
      case StepKind::kFetch:
      case StepKind::kCompiled: break;
      case StepKind::kBind: ++bound; break;
      case StepKind::kStore: ++stored; break;
      default: return false;
    }
  }
  return stored == bound;
}

TileSchedule make_fused_schedule(const tile::Program& expanded, const IsaTable& isa,
                                 const CodeTarget& target, FuseSteps fuse) {
  Scheduler scheduler(expanded, isa, target.recompute);
  scheduler.fuse_for(target, fuse);
  return scheduler.run();
}

}  // namespace mithril::cpu
