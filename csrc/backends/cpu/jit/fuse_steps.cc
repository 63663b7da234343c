#include "backends/cpu/jit/fuse_steps.h"

#include <algorithm>
#include <map>
#include <set>

#include "backends/cpu/jit/compile.h"
#include "backends/cpu/jit/machine.h"

namespace mithril::cpu::jit {
namespace {

using core::DType;
using tile::Instruction;
using tile::Level;
using tile::Opcode;

constexpr size_t kMost = 1500;  // values of one function
// Memory rests once the first section has read a tile of rows; the second one asks for the next.
constexpr size_t kAheadSection = 1;

class Fuser {
 public:
  Fuser(const tile::Program& program, const CodeTarget& target, const Unfused& steps,
        TileSchedule& schedule)
      : program_(program),
        layout_(target.layout),
        isa_(target.isa),
        streams_(target.streams),
        steps_(steps),
        schedule_(schedule) {}

  void run() {
    count_reads();
    for (const TileStep& step : steps_.setup) {
      if (step.kind == StepKind::kFill) filled_[step.out] = step.a;
      if (step.kind == StepKind::kConstant) constants_[step.out] = step.bits;
    }
    for (size_t s = 0; s < steps_.lanes.size(); ++s) {
      fetches_ahead_ = streams_ && layout_ == Layout::kRowInside && s == kAheadSection;
      fuse(steps_.lanes[s]);
    }
    drop_unread();
  }

 private:
  const Instruction& instruction(const TileStep& step) const {
    return program_.code[static_cast<size_t>(step.instruction)];
  }
  DType type_of(tile::RegId r) const { return program_.code[r].dtype; }

  static void for_reads(const TileSchedule& schedule, const TileStep& step, auto f) {
    if (step.kind == StepKind::kCompiled) {
      for (const int32_t s : schedule.compiled[static_cast<size_t>(step.index)].reads) f(s);
    }
    for (const int32_t s : {step.a, step.b, step.c}) {
      if (s >= 0) f(s);
    }
  }
  void count_reads() {
    reads_.assign(schedule_.slots.size(), 0);
    const auto count = [&](const std::vector<TileStep>& list) {
      for (const TileStep& step : list) {
        for_reads(schedule_, step, [&](int32_t s) { ++reads_[static_cast<size_t>(s)]; });
      }
    };
    count(steps_.setup);
    for (const auto& section : steps_.rows) count(section);
    for (const auto& section : steps_.lanes) count(section);
  }

  // ---- runs

  bool is_call(const TileStep& step) const {
    if (step.kind != StepKind::kCall) return false;
    const Instruction& i = instruction(step);
    const size_t arity = tile::info(i.opcode).arity;
    return can_lower(i.opcode, i.dtype, type_of(i.operands[arity - 1]), isa_);
  }
  bool is_reduction(const TileStep& step) const {
    if (step.kind != StepKind::kReduce) return false;
    const Instruction& i = instruction(step);
    if (!can_lower_reduction(i.opcode, type_of(i.operands[0]))) return false;
    const bool ordered = core::is_float(i.dtype) &&
                         (i.opcode == Opcode::kReduceSum || i.opcode == Opcode::kReduceProd);
    const bool across = layout_ == Layout::kRowAcross;
    return !ordered || (i.order == tile::Order::kRows) == across;
  }

  void fuse(std::vector<TileStep>& section) {
    std::vector<TileStep> old;
    old.swap(section);
    for (const TileStep& step : old) {
      if (step.kind == StepKind::kExpand) expanded_[step.out] = step.a;
      if (step.kind == StepKind::kBind) bound_.insert(step.out);
      if (step.kind == StepKind::kFetch) fetched_.insert(step.out);
      if (is_call(step) || is_reduction(step)) {
        run_.push_back(step);
        if (run_.size() == kMost) flush(section);
      } else if (step.kind == StepKind::kReduce) {
        later_.push_back(step);  // nothing in this section reads its result
      } else {
        const bool parts = step.kind == StepKind::kCall || step.kind == StepKind::kScan ||
                           step.kind == StepKind::kStore;
        if (parts) flush(section);
        if (step.kind == StepKind::kStore) finish(section);
        section.push_back(step);
      }
    }
    flush(section);
    finish(section);
  }

  void finish(std::vector<TileStep>& section) {
    section.insert(section.end(), later_.begin(), later_.end());
    later_.clear();
  }

  void flush(std::vector<TileStep>& section) {
    drop_surplus();
    const auto expands = [&](const TileStep& step) {
      return (step.a >= 0 && expanded_.contains(step.a)) ||
             (step.b >= 0 && expanded_.contains(step.b)) ||
             (step.c >= 0 && expanded_.contains(step.c));
    };
    const auto broadcasts = std::count_if(run_.begin(), run_.end(), expands);
    const auto calls = static_cast<int>(run_.size()) + static_cast<int>(broadcasts);
    const int fewest = layout_ == Layout::kBlock ? 1 : kFewestOfLoop;
    if (run_.empty() || calls < fewest) {
      section.insert(section.end(), run_.begin(), run_.end());
    } else {
      section.push_back(compiled());
    }
    run_.clear();
  }

  // Accumulators take half of the registers at most.
  void drop_surplus() {
    bool wide_lanes = false;
    for (const TileStep& step : run_) {
      const Instruction& i = instruction(step);
      wide_lanes = wide_lanes || core::size_of(i.dtype) == 8;
      for (const tile::RegId r : i.operands) {
        wide_lanes = wide_lanes || (r != tile::kNoReg && core::size_of(type_of(r)) == 8);
      }
    }
    const size_t bytes = isa_ == Isa::kAvx512 ? 64 : 32, registers = isa_ == Isa::kAvx512 ? 32 : 16;
    const size_t lanes = bytes / (wide_lanes ? 8 : 4);
    size_t left = registers / 2 / std::max<size_t>(1, tile::kLanesWidth / lanes);
    const auto surplus = [&](const TileStep& step) {
      if (step.kind != StepKind::kReduce || left-- > 0) return false;
      left = 0;
      later_.push_back(step);
      return true;
    };
    run_.erase(std::remove_if(run_.begin(), run_.end(), surplus), run_.end());
  }

  // ---- one compiled step

  TileStep compiled() {
    values_.clear();
    made_.clear();
    CompiledStep out;
    std::map<int32_t, int32_t> inner;  // reads inside of the run
    for (const TileStep& step : run_) {
      for_reads(schedule_, step, [&](int32_t s) { ++inner[s]; });
      if (step.kind == StepKind::kReduce) {
        add_reduction(step, out);
      } else {
        add_call(step, out.program);
      }
    }
    for (const auto& [slot, value] : made_) {
      if (inner[slot] == reads_[static_cast<size_t>(slot)]) continue;
      // Nobody but its store reads what goes past the caches.
      const bool alone = reads_[static_cast<size_t>(slot)] == inner[slot] + 1;
      const DType dtype = out.program.values[static_cast<size_t>(value)].dtype;
      const bool streams = streams_ && alone && bound_.contains(slot) && core::size_of(dtype) >= 4;
      out.program.outputs.push_back({value, slot, streams});
      out.writes.push_back(slot);
    }
    for (const Value& v : out.program.values) {
      if (v.slot >= 0) out.reads.push_back(v.slot);
    }
    out.walk = walk(out.program);
    TileStep step;
    step.kind = StepKind::kCompiled;
    step.index = static_cast<int32_t>(schedule_.compiled.size());
    schedule_.compiled.push_back(std::move(out));
    return step;
  }

  Walk walk(const LaneProgram& program) const {
    const bool rows = std::any_of(program.values.begin(), program.values.end(),
                                  [](const Value& v) { return v.source == Source::kRow; });
    if (layout_ == Layout::kBlock) return Walk::kBlock;
    if (!rows && program.reductions.empty()) return Walk::kFlat;
    return layout_ == Layout::kRowAcross ? Walk::kAcross : Walk::kInside;
  }

  int32_t add(LaneProgram& program, const Value& value) {
    program.values.push_back(value);
    return static_cast<int32_t>(program.values.size()) - 1;
  }

  /// The value in that slot, seen as `dtype`.
  int32_t value_in(int32_t slot, DType dtype, LaneProgram& program) {
    const auto [known, is_new] = values_.try_emplace({slot, dtype}, -1);
    if (!is_new) return known->second;
    Value v;
    v.dtype = dtype;
    v.slot = slot;
    if (const auto made = made_.find(slot); made != made_.end()) {
      v.opcode = Opcode::kBitcast;
      v.operands[0] = made->second;
      v.slot = -1;
    } else {
      locate(v);
    }
    return known->second = add(program, v);
  }
  void locate(Value& v) const {
    v.source = Source::kLane;
    if (const auto row = expanded_.find(v.slot); row != expanded_.end()) v.slot = row->second;
    if (const auto one = filled_.find(v.slot); one != filled_.end()) v.slot = one->second;
    const Level level = schedule_.slots[static_cast<size_t>(v.slot)].level;
    v.ahead = fetches_ahead_ && level == Level::kLane && fetched_.contains(v.slot);
    if (level == Level::kRow) v.source = Source::kRow;
    if (level != Level::kUniform) return;
    v.source = Source::kUniform;
    if (const auto bits = constants_.find(v.slot); bits != constants_.end()) {
      v.source = Source::kConstant;
      v.bits = bits->second;
      v.slot = -1;
    }
  }

  void add_call(const TileStep& step, LaneProgram& program) {
    const Instruction& i = instruction(step);
    const int32_t slots[3] = {step.a, step.b, step.c};
    Value v;
    v.opcode = i.opcode;
    v.dtype = i.dtype;
    v.index = i.index;
    for (size_t k = 0; k < tile::info(i.opcode).arity; ++k) {
      v.operands[k] = value_in(slots[k], type_of(i.operands[k]), program);
    }
    const int32_t made = add(program, v);
    made_[step.out] = made;
    values_[{step.out, i.dtype}] = made;
  }

  void add_reduction(const TileStep& step, CompiledStep& out) {
    const Instruction& i = instruction(step);
    LaneReduction r;
    r.value = value_in(step.a, type_of(i.operands[0]), out.program);
    r.opcode = i.opcode;
    r.order = i.order;
    Reduction& reduction = schedule_.reductions[static_cast<size_t>(step.index)];
    schedule_.slots.push_back({Level::kRow, reduction.size});
    r.slot = static_cast<int32_t>(schedule_.slots.size()) - 1;
    reads_.push_back(1);
    r.reduction = step.index;
    if (layout_ == Layout::kRowAcross) reduction.running = r.slot;
    out.program.reductions.push_back(r);
  }

  // ---- what is left over

  // Copies and uniform values that were for the steps that are gone. Backwards, as they read each
  // other.
  void drop_unread() {
    count_reads();
    const auto is_unread = [&](const TileStep& step, bool goes) {
      if (!goes || reads_[static_cast<size_t>(step.out)] > 0) return false;
      for_reads(schedule_, step, [&](int32_t s) { --reads_[static_cast<size_t>(s)]; });
      return true;
    };
    for (auto& section : steps_.lanes) {
      std::erase_if(section, [&](const TileStep& step) {
        return is_unread(step, step.kind == StepKind::kExpand);
      });
    }
    std::reverse(steps_.setup.begin(), steps_.setup.end());
    std::erase_if(steps_.setup, [&](const TileStep& step) { return is_unread(step, true); });
    std::reverse(steps_.setup.begin(), steps_.setup.end());
  }

  const tile::Program& program_;
  Layout layout_;
  Isa isa_;
  bool streams_;
  const Unfused& steps_;
  TileSchedule& schedule_;
  std::vector<int32_t> reads_;                    // by slot
  std::map<int32_t, int32_t> filled_, expanded_;  // slot → the uniform, the row
  std::map<int32_t, uint64_t> constants_;
  std::vector<TileStep> run_, later_;
  std::set<int32_t> bound_;    // slots that may lie on outputs
  std::set<int32_t> fetched_;  // … on inputs
  bool fetches_ahead_ = false;
  std::map<std::pair<int32_t, DType>, int32_t> values_;
  std::map<int32_t, int32_t> made_;  // slot → value that the run computes
};

}  // namespace

void fuse_steps(const tile::Program& program, const CodeTarget& target, const Unfused& steps,
                TileSchedule& schedule) {
  Fuser(program, target, steps, schedule).run();
}

}  // namespace mithril::cpu::jit
