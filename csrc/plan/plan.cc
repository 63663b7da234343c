#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/checked.h"

namespace mithril::plan {
namespace {

using core::Code;
using core::ErrorKind;

constexpr int64_t kAlignment = 64;
/// Beyond this many temporaries they are placed in the order of steps only.
constexpr size_t kMostPacked = 4096;

struct Lifetime {
  int32_t first = -1;  // step that writes it first
  int32_t last = -1;   // step that reads or writes it last
};

std::vector<Lifetime> lifetimes(const Steps& steps) {
  std::vector<Lifetime> out(steps.buffers.size());
  for (size_t at = 0; at < steps.steps.size(); ++at) {
    for (const OperandRef& use : steps.steps[at].operands) {
      Lifetime& life = out[static_cast<size_t>(use.buffer)];
      if (life.first < 0) life.first = static_cast<int32_t>(at);
      life.last = static_cast<int32_t>(at);
    }
  }
  return out;
}

int64_t rounded_up(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

/// Free bytes of the arena, best fit; grows at the end.
class ArenaLayout {
 public:
  std::optional<int64_t> take(int64_t bytes) {
    const auto rounded = core::checked_add(std::max<int64_t>(bytes, 1), kAlignment - 1);
    if (!rounded) return std::nullopt;
    const int64_t size = *rounded / kAlignment * kAlignment;
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < size) continue;
      if (best == holes_.end() || hole->second < best->second) best = hole;
    }
    if (best != holes_.end()) {
      const auto [offset, room] = *best;
      holes_.erase(best);
      if (room > size) holes_[offset + size] = room - size;
      return offset;
    }
    // A hole at the end is grown rather than skipped.
    int64_t offset = end_;
    if (!holes_.empty()) {
      const auto last = std::prev(holes_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        holes_.erase(last);
      }
    }
    const auto end = core::checked_add(offset, size);
    if (!end) return std::nullopt;
    end_ = std::max(end_, *end);
    return offset;
  }

  void give_back(int64_t offset, int64_t bytes) {
    int64_t size = rounded_up(bytes);
    auto next = holes_.lower_bound(offset);
    if (next != holes_.end() && offset + size == next->first) {
      size += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += size;
        return;
      }
    }
    holes_[offset] = size;
  }

  int64_t size() const { return end_; }

 private:
  std::map<int64_t, int64_t> holes_;  // offset → bytes
  int64_t end_ = 0;
};

/// Describes what lies in the arena from one step to another: a temporary, and those that take its
/// bytes over.
struct Block {
  Lifetime life;
  int64_t bytes = 0;
  int64_t offset = 0;
};

/// Places the largest blocks first, each as low as it can lie; returns where the arena ends. Blocks
/// that outlive others leave no holes that larger ones do not fit, as in the order of steps.
int64_t pack_by_size(std::vector<Block>& blocks) {
  std::vector<Block*> order;
  for (Block& block : blocks) order.push_back(&block);
  std::stable_sort(order.begin(), order.end(),
                   [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  std::vector<const Block*> placed;  // by offset
  int64_t end = 0;
  for (Block* block : order) {
    int64_t offset = 0;
    for (const Block* other : placed) {
      if (other->offset >= offset + block->bytes) break;
      const bool meet =
          block->life.first <= other->life.last && other->life.first <= block->life.last;
      if (meet) offset = std::max(offset, other->offset + other->bytes);
    }
    block->offset = offset;
    end = std::max(end, offset + block->bytes);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), block,
                         [](const Block* a, const Block* b) { return a->offset < b->offset; });
    placed.insert(behind, block);
  }
  return end;
}

class Planner {
 public:
  explicit Planner(Steps steps)
      : steps_(std::move(steps)),
        lives_(lifetimes(steps_)),
        offsets_(steps_.buffers.size(), -1),
        block_of_(steps_.buffers.size(), -1) {}

  core::Result<Plan> run() {
    count_bases();
    for (size_t at = 0; at < steps_.steps.size(); ++at) {
      MITHRIL_RETURN_IF_ERROR(place_outputs(static_cast<int32_t>(at)));
      find_update(static_cast<int32_t>(at));
      release_dying(static_cast<int32_t>(at));
    }
    plan_.arena_bytes = arena_.size();
    if (blocks_.size() <= kMostPacked) use_packing();
    for (Step& step : steps_.steps) plan_.steps.push_back(address(std::move(step)));
    plan_.constants = std::move(steps_.constants);
    plan_.buffers = std::move(steps_.buffers);
    return std::move(plan_);
  }

 private:
  const BufferSpec& buffer(BufferId id) const { return steps_.buffers[static_cast<size_t>(id)]; }
  const Lifetime& life(BufferId id) const { return lives_[static_cast<size_t>(id)]; }
  int64_t& offset(BufferId id) { return offsets_[static_cast<size_t>(id)]; }
  int32_t& block_of(BufferId id) { return block_of_[static_cast<size_t>(id)]; }
  bool is_temporary(BufferId id) const { return buffer(id).kind == BufferSpec::Kind::kTemporary; }

  void count_bases() {
    for (const BufferSpec& buffer : steps_.buffers) {
      if (buffer.kind == BufferSpec::Kind::kInput) {
        plan_.input_count = std::max(plan_.input_count, buffer.index + 1);
      } else if (buffer.kind == BufferSpec::Kind::kOutput) {
        plan_.output_count = std::max(plan_.output_count, buffer.index + 1);
      }
    }
  }

  core::Status place_outputs(int32_t at) {
    const Step& step = steps_.steps[static_cast<size_t>(at)];
    int32_t output = -1;
    for (const OperandRef& use : step.operands) {
      if (!use.write) continue;
      ++output;
      if (!is_temporary(use.buffer) || offset(use.buffer) >= 0) continue;
      if (take_over(step, at, output, use.buffer)) continue;
      const auto place = arena_.take(buffer(use.buffer).bytes);
      if (!place) {
        return core::fail(ErrorKind::kMemory, Code::kOutOfMemory,
                          "the intermediate results of this model do not fit an address space");
      }
      offset(use.buffer) = *place;
      block_of(use.buffer) = static_cast<int32_t>(blocks_.size());
      blocks_.push_back({life(use.buffer), rounded_up(buffer(use.buffer).bytes)});
    }
    return {};
  }

  // Where it takes less than in the order of steps.
  void use_packing() {
    const int64_t end = pack_by_size(blocks_);
    if (end >= plan_.arena_bytes) return;
    plan_.arena_bytes = end;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      if (block_of_[i] >= 0) offsets_[i] = blocks_[static_cast<size_t>(block_of_[i])].offset;
    }
  }

  // The output gets the bytes of an operand that dies here.
  bool take_over(const Step& step, int32_t at, int32_t number, BufferId output) {
    for (const InPlace& candidate : step.inplace) {
      if (candidate.output != number) continue;
      const OperandRef& victim = step.operands[static_cast<size_t>(candidate.operand)];
      const bool dies = is_temporary(victim.buffer) && life(victim.buffer).last == at;
      const bool fits = victim.offset == 0 && buffer(victim.buffer).bytes == buffer(output).bytes;
      if (!dies || !fits || is_taken(victim.buffer) || offset(victim.buffer) < 0) continue;
      offset(output) = offset(victim.buffer);
      block_of(output) = block_of(victim.buffer);
      blocks_[static_cast<size_t>(block_of(output))].life.last = life(output).last;
      taken_over_.push_back(victim.buffer);
      return true;
    }
    return false;
  }

  void find_update(int32_t at) {
    const Step& step = steps_.steps[static_cast<size_t>(at)];
    if (!step.partial_update) return;
    const OperandRef& from = step.operands[static_cast<size_t>(step.inplace[0].operand)];
    const auto is_output = [](const OperandRef& use) { return use.write; };
    const OperandRef& to = *std::find_if(step.operands.begin(), step.operands.end(), is_output);
    const BufferSpec &input = buffer(from.buffer), &output = buffer(to.buffer);
    const auto again = [&](const OperandRef& use) { return use.buffer == from.buffer; };
    const bool reads_once = std::count_if(step.operands.begin(), step.operands.end(), again) == 1;
    const bool same_kind =
        input.kind == BufferSpec::Kind::kInput && output.kind == BufferSpec::Kind::kOutput;
    const bool same_place = from.offset == 0 && to.offset == 0 && input.bytes == output.bytes;
    if (!same_kind || !same_place || !reads_once || life(from.buffer).last != at) return;
    plan_.donations.push_back({output.index, input.index});
  }

  bool is_taken(BufferId id) const {
    return std::find(taken_over_.begin(), taken_over_.end(), id) != taken_over_.end();
  }

  void release_dying(int32_t at) {
    std::vector<BufferId> dying;
    for (const OperandRef& use : steps_.steps[static_cast<size_t>(at)].operands) {
      const bool again = std::find(dying.begin(), dying.end(), use.buffer) != dying.end();
      if (is_temporary(use.buffer) && life(use.buffer).last == at && !again) {
        dying.push_back(use.buffer);
      }
    }
    for (const BufferId id : dying) {
      if (!is_taken(id) && offset(id) >= 0) arena_.give_back(offset(id), buffer(id).bytes);
    }
    taken_over_.clear();
  }

  PlannedStep address(Step step) {
    PlannedStep out;
    for (const OperandRef& use : step.operands) {
      const BufferSpec& target = buffer(use.buffer);
      switch (target.kind) {
        case BufferSpec::Kind::kInput:
          out.operands.push_back({plan_.input_base(target.index), use.offset});
          break;
        case BufferSpec::Kind::kOutput:
          out.operands.push_back({plan_.output_base(target.index), use.offset});
          break;
        case BufferSpec::Kind::kConstant:
          out.operands.push_back({plan_.constant_base(target.index), use.offset});
          break;
        case BufferSpec::Kind::kTemporary:
          out.operands.push_back({Plan::kArena, offset(use.buffer) + use.offset});
          break;
      }
    }
    plan_.scratch_bytes = std::max(plan_.scratch_bytes, step.scratch_bytes);
    out.step = std::move(step);
    return out;
  }

  Steps steps_;
  std::vector<Lifetime> lives_;
  std::vector<int64_t> offsets_;
  std::vector<int32_t> block_of_;  // by buffer; -1: not in the arena
  std::vector<Block> blocks_;
  std::vector<BufferId> taken_over_;
  ArenaLayout arena_;
  Plan plan_;
};

core::Status plan_region(Region& region) {
  if (region.steps == nullptr) return {};
  MITHRIL_ASSIGN(Plan made, make_plan(*region.steps));
  region = std::make_shared<const Plan>(std::move(made));
  return {};
}

core::Status plan_regions(Step& step) {
  if (step.loop != nullptr) {
    auto loop = std::make_shared<RegionLoop>(*step.loop);
    MITHRIL_RETURN_IF_ERROR(plan_region(loop->body));
    MITHRIL_RETURN_IF_ERROR(plan_region(loop->condition));
    step.loop = std::move(loop);
  } else if (step.branch != nullptr) {
    auto branch = std::make_shared<Branch>(*step.branch);
    MITHRIL_RETURN_IF_ERROR(plan_region(branch->taken));
    MITHRIL_RETURN_IF_ERROR(plan_region(branch->other));
    step.branch = std::move(branch);
  }
  return {};
}

}  // namespace

core::Result<Plan> make_plan(Steps steps) {
  for (Step& step : steps.steps) MITHRIL_RETURN_IF_ERROR(plan_regions(step));
  return Planner(std::move(steps)).run();
}

}  // namespace mithril::plan
