#include "plan/schedule.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "core/status.h"

namespace mithril::plan {
namespace {

/// Bounds what a step may take beyond what it frees and still run as soon as it can: the counter of
/// an optimizer must not hold up updates that free megabytes.
constexpr int64_t kLittle = 4096;

/// Steps that move to their readers: each move must take such a part of the peak away.
constexpr int kMostMoves = 8;
constexpr size_t kMostTried = 4;  // for one move
constexpr int64_t kLeastPart = 16;

/// By buffer: the steps that read it and those that write it, each once, in the order given.
struct Users {
  explicit Users(const Steps& steps)
      : readers(steps.buffers.size()), writers(steps.buffers.size()) {
    for (size_t at = 0; at < steps.steps.size(); ++at) {
      for (const OperandRef& use : steps.steps[at].operands) {
        auto& users = (use.write ? writers : readers)[static_cast<size_t>(use.buffer)];
        const auto step = static_cast<int32_t>(at);
        if (users.empty() || users.back() != step) users.push_back(step);
      }
    }
  }
  std::vector<std::vector<int32_t>> readers, writers;
};

/// By step: a place in an order of execution in which those of `late` whose results nobody reads
/// come last. What is read before it is overwritten in this order can be so in others.
std::vector<int64_t> places(const Steps& steps, const Users& users, const std::vector<bool>& late) {
  const auto is_read = [&](const OperandRef& use) {
    const auto id = static_cast<size_t>(use.buffer);
    return use.write && steps.buffers[id].kind != BufferSpec::Kind::kInput &&
           !users.readers[id].empty();
  };
  const size_t count = steps.steps.size();
  std::vector<int64_t> out;
  for (size_t at = 0; at < count; ++at) {
    const std::vector<OperandRef>& uses = steps.steps[at].operands;
    const bool waits = late[at] && std::none_of(uses.begin(), uses.end(), is_read);
    out.push_back(static_cast<int64_t>(at + (waits ? count : 0)));
  }
  return out;
}

/// Finds whether outputs may lie where inputs do.
class Overwriter {
 public:
  Overwriter(Steps& steps, const std::vector<std::pair<BufferId, BufferId>>& pairs)
      : steps_(steps), users_(steps) {
    std::vector<bool> late(steps.steps.size(), false);
    for (const auto& [output, input] : pairs) {
      for (const int32_t writer : users_.writers[static_cast<size_t>(output)]) {
        late[static_cast<size_t>(writer)] = true;
      }
    }
    places_ = places(steps, users_, late);
  }

  bool overwrite(BufferId output, BufferId input) {
    const auto& writers = users_.writers[static_cast<size_t>(output)];
    const auto& readers = users_.readers[static_cast<size_t>(input)];
    if (writers.size() != 1 || !users_.readers[static_cast<size_t>(output)].empty()) return false;
    Step& writer = steps_.steps[static_cast<size_t>(writers[0])];
    if (bytes(output) != bytes(input) || !may_overwrite(writer, output, input)) return false;
    const bool is_last = std::all_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return reader == writers[0] || place(reader) < place(writers[0]);
    });
    if (!is_last) return false;
    for (OperandRef& use : writer.operands) {
      if (use.buffer == output) use.buffer = input;
    }
    return true;
  }

 private:
  int64_t bytes(BufferId id) const { return steps_.buffers[static_cast<size_t>(id)].bytes; }
  int64_t place(int32_t step) const { return places_[static_cast<size_t>(step)]; }

  // Whether the step reads the input, if at all, element by element as it writes the output.
  static bool may_overwrite(const Step& step, BufferId output, BufferId input) {
    int32_t number = -1, count = 0;
    for (const OperandRef& use : step.operands) {
      if (use.write && use.buffer == output) number = count;
      if (use.write) ++count;
    }
    for (size_t i = 0; i < step.operands.size(); ++i) {
      if (step.operands[i].write || step.operands[i].buffer != input) continue;
      const auto is_this = [&](const InPlace& in) {
        return in.output == number && in.operand == static_cast<int32_t>(i);
      };
      if (std::none_of(step.inplace.begin(), step.inplace.end(), is_this)) return false;
    }
    return true;
  }

  Steps& steps_;
  Users users_;
  std::vector<int64_t> places_;  // by step
};

/// Tells which steps wait for which.
class Order {
 public:
  explicit Order(const Steps& steps)
      : steps_(steps), users_(steps), next_(steps.steps.size()), waits_(steps.steps.size(), 0) {
    for (size_t i = 0; i < steps.buffers.size(); ++i) {
      const bool is_input = steps.buffers[i].kind == BufferSpec::Kind::kInput;
      is_input ? read_before_written(i) : keep_order(i);
    }
    for (size_t at = 0; at < steps.steps.size(); ++at) wait(static_cast<int32_t>(at));
    refuse_before_overwriting();
  }

  const std::vector<int32_t>& after(int32_t step) const { return next_[static_cast<size_t>(step)]; }
  const std::vector<int32_t>& waits() const { return waits_; }
  const Users& users() const { return users_; }

 private:
  void add(int32_t from, int32_t to) {
    if (from == to) return;
    next_[static_cast<size_t>(from)].push_back(to);
    ++waits_[static_cast<size_t>(to)];
  }

  void wait(int32_t at) {
    for (const BufferId id : steps_.steps[static_cast<size_t>(at)].depends_on) {
      for (const int32_t writer : users_.writers[static_cast<size_t>(id)]) add(writer, at);
    }
  }

  void read_before_written(size_t buffer) {
    for (const int32_t writer : users_.writers[buffer]) {
      overwriting_.push_back(writer);
      for (const int32_t reader : users_.readers[buffer]) add(reader, writer);
    }
  }

  // Of what several steps write, each waits for those before.
  void keep_order(size_t buffer) {
    const auto &readers = users_.readers[buffer], &writers = users_.writers[buffer];
    auto reader = readers.begin();
    for (size_t i = 0; i < writers.size(); ++i) {
      if (i > 0) add(writers[i - 1], writers[i]);
      const bool is_last = i + 1 == writers.size();
      for (; reader != readers.end() && (is_last || *reader <= writers[i + 1]); ++reader) {
        add(writers[i], *reader);
        if (!is_last) add(*reader, writers[i + 1]);
      }
    }
  }

  // What fails then has changed nothing.
  void refuse_before_overwriting() {
    std::sort(overwriting_.begin(), overwriting_.end());
    overwriting_.erase(std::unique(overwriting_.begin(), overwriting_.end()), overwriting_.end());
    std::vector<int32_t> refusing;
    for (size_t at = 0; at < steps_.steps.size(); ++at) {
      if (steps_.steps[at].may_fail_on_data) refusing.push_back(static_cast<int32_t>(at));
    }
    std::vector<bool> late(steps_.steps.size(), false);
    for (const int32_t writer : overwriting_) late[static_cast<size_t>(writer)] = true;
    const std::vector<int64_t> place = places(steps_, users_, late);
    for (const int32_t writer : overwriting_) {
      for (const int32_t one : refusing) {
        if (place[static_cast<size_t>(one)] < place[static_cast<size_t>(writer)]) add(one, writer);
      }
    }
  }

  const Steps& steps_;
  Users users_;
  std::vector<std::vector<int32_t>> next_;
  std::vector<int32_t> waits_, overwriting_;
};

/// Temporaries in use as steps run one after the other.
class Usage {
 public:
  explicit Usage(const Steps& steps) : steps_(steps), left_(steps.buffers.size(), 0) {
    for (const Step& step : steps.steps) {
      for (const BufferId id : temporaries(step)) ++left_[static_cast<size_t>(id)];
    }
    is_there_.assign(steps.buffers.size(), false);
  }

  /// Temporaries that a step uses, each once.
  std::vector<BufferId> temporaries(const Step& step) const {
    std::vector<BufferId> out;
    for (const OperandRef& use : step.operands) {
      const bool is_temporary = buffer(use.buffer).kind == BufferSpec::Kind::kTemporary;
      if (is_temporary && std::find(out.begin(), out.end(), use.buffer) == out.end()) {
        out.push_back(use.buffer);
      }
    }
    return out;
  }

  /// More bytes in use after the step than before it.
  int64_t growth(const Step& step) const {
    int64_t bytes = 0;
    for (const BufferId id : temporaries(step)) {
      if (!is_there_[static_cast<size_t>(id)]) bytes += buffer(id).bytes;
      if (left_[static_cast<size_t>(id)] == 1) bytes -= buffer(id).bytes;
    }
    return bytes;
  }

  /// Runs it; buffers that one more step will use are added to `last`.
  void run(const Step& step, std::vector<BufferId>* last = nullptr) {
    const std::vector<BufferId> used = temporaries(step);
    for (const BufferId id : used) {
      if (is_there_[static_cast<size_t>(id)]) continue;
      is_there_[static_cast<size_t>(id)] = true;
      live_ += buffer(id).bytes;
    }
    if (const int64_t bytes = live_ - taken_over(step); bytes > peak_) {
      peak_ = bytes;
      peak_at_ = count_;
    }
    ++count_;
    for (const BufferId id : used) {
      const int32_t left = --left_[static_cast<size_t>(id)];
      if (left == 0) live_ -= buffer(id).bytes;
      if (left == 1 && last != nullptr) last->push_back(id);
    }
  }

  int64_t peak() const { return peak_; }
  /// Tells how many steps ran before the first one with the most in use; -1: none used anything.
  int32_t peak_at() const { return peak_at_; }

 private:
  const BufferSpec& buffer(BufferId id) const { return steps_.buffers[static_cast<size_t>(id)]; }

  int64_t taken_over(const Step& step) const {
    int64_t bytes = 0;
    std::vector<BufferId> seen;
    for (const InPlace& in : step.inplace) {
      const BufferId id = step.operands[static_cast<size_t>(in.operand)].buffer;
      const bool dies =
          buffer(id).kind == BufferSpec::Kind::kTemporary && left_[static_cast<size_t>(id)] == 1;
      if (!dies || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
      seen.push_back(id);
      bytes += buffer(id).bytes;
    }
    return bytes;
  }

  const Steps& steps_;
  std::vector<int32_t> left_;   // by buffer: steps that will use it
  std::vector<bool> is_there_;  // by buffer
  int64_t live_ = 0, peak_ = 0;
  int32_t count_ = 0, peak_at_ = -1;
};

/// The order given, with steps that free memory as early as they can, or without.
class Scheduler {
 public:
  Scheduler(const Steps& steps, const Order& order, bool hurries)
      : steps_(steps), order_(order), usage_(steps), waits_(order.waits()), hurries_(hurries) {
    done_.assign(steps.steps.size(), false);
    sum_.assign(steps.buffers.size(), 0);
    for (size_t at = 0; at < steps.steps.size(); ++at) {
      for (const BufferId id : usage_.temporaries(steps.steps[at])) {
        sum_[static_cast<size_t>(id)] += static_cast<int64_t>(at);
      }
    }
    for (size_t at = 0; at < steps.steps.size(); ++at) {
      if (waits_[at] == 0) make_ready(static_cast<int32_t>(at));
    }
  }

  std::vector<int32_t> run() {
    std::vector<int32_t> out;
    while (out.size() < steps_.steps.size()) {
      const int32_t at = take();
      MITHRIL_CHECK(at >= 0, "steps that wait for one another");
      out.push_back(at);
      finish(at);
    }
    return out;
  }
  int64_t peak() const { return usage_.peak(); }

 private:
  using Heap = std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>>;

  void make_ready(int32_t at) {
    ready_.push(at);
    hurry(at);
  }

  void hurry(int32_t at) {
    if (hurries_ && usage_.growth(steps_.steps[static_cast<size_t>(at)]) <= limit(at)) {
      hurried_.push(at);
    }
  }

  // What only frees as much as it takes stays where it is.
  int64_t limit(int32_t at) const {
    const auto temporaries = usage_.temporaries(steps_.steps[static_cast<size_t>(at)]);
    const bool is_little = std::all_of(temporaries.begin(), temporaries.end(), [&](BufferId id) {
      return steps_.buffers[static_cast<size_t>(id)].bytes <= kLittle;
    });
    return is_little ? kLittle : -1;
  }

  int32_t take() {
    for (Heap* heap : {&hurried_, &ready_}) {
      while (!heap->empty()) {
        const int32_t at = heap->top();
        heap->pop();
        if (!done_[static_cast<size_t>(at)]) return at;
      }
    }
    return -1;
  }

  void finish(int32_t at) {
    done_[static_cast<size_t>(at)] = true;
    const Step& step = steps_.steps[static_cast<size_t>(at)];
    for (const BufferId id : usage_.temporaries(step)) sum_[static_cast<size_t>(id)] -= at;
    std::vector<BufferId> last;
    usage_.run(step, &last);
    for (const int32_t next : order_.after(at)) {
      if (--waits_[static_cast<size_t>(next)] == 0) make_ready(next);
    }
    for (const BufferId id : last) {  // the one step that is left frees it
      const auto user = static_cast<int32_t>(sum_[static_cast<size_t>(id)]);
      if (waits_[static_cast<size_t>(user)] == 0) hurry(user);
    }
  }

  const Steps& steps_;
  const Order& order_;
  Usage usage_;
  std::vector<int32_t> waits_;
  const bool hurries_;
  Heap ready_, hurried_;
  std::vector<bool> done_;
  std::vector<int64_t> sum_;  // by buffer: of the indices of steps that will use it
};

/// Moves steps whose results lie idle at the peak down to where they are read first.
class Mover {
 public:
  Mover(const Steps& steps, const Order& order, std::vector<int32_t> order_of_steps)
      : steps_(steps), order_(order), best_(std::move(order_of_steps)) {
    peak_ = measure(best_, &peak_at_);
  }

  std::vector<int32_t> run() {
    for (int i = 0; i < kMostMoves && move_one(); ++i) {
    }
    return std::move(best_);
  }

 private:
  struct Move {
    int64_t bytes;
    size_t from, to;  // a step's place and that of its first reader
  };

  int64_t measure(const std::vector<int32_t>& order, int32_t* at) const {
    Usage usage(steps_);
    for (const int32_t step : order) usage.run(steps_.steps[static_cast<size_t>(step)]);
    *at = usage.peak_at();
    return usage.peak();
  }

  bool move_one() {
    const std::vector<Move> moves = found();
    for (size_t i = 0; i < std::min(moves.size(), kMostTried); ++i) {
      std::vector<int32_t> order = best_;
      const auto begin = order.begin();
      const auto from = static_cast<int64_t>(moves[i].from), to = static_cast<int64_t>(moves[i].to);
      std::rotate(begin + from, begin + from + 1, begin + to);
      int32_t at = -1;
      const int64_t peak = measure(order, &at);
      if (peak > peak_ - peak_ / kLeastPart) continue;
      best_ = std::move(order);
      peak_ = peak;
      peak_at_ = at;
      return true;
    }
    return false;
  }

  // The largest first.
  std::vector<Move> found() const {
    std::vector<size_t> place(best_.size());
    for (size_t i = 0; i < best_.size(); ++i) place[static_cast<size_t>(best_[i])] = i;
    std::vector<Move> out;
    for (size_t id = 0; id < steps_.buffers.size(); ++id) {
      const std::vector<int32_t>& writers = order_.users().writers[id];
      const int64_t bytes = steps_.buffers[id].bytes;
      if (steps_.buffers[id].kind != BufferSpec::Kind::kTemporary || writers.size() != 1) continue;
      if (bytes < peak_ / kLeastPart) continue;
      const size_t from = place[static_cast<size_t>(writers[0])];
      size_t to = best_.size();
      for (const int32_t next : order_.after(writers[0])) {
        to = std::min(to, place[static_cast<size_t>(next)]);
      }
      const auto peak = static_cast<size_t>(peak_at_);
      if (from <= peak && peak < to && from + 1 < to && to < best_.size())
        out.push_back({bytes, from, to});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Move& a, const Move& b) { return a.bytes > b.bytes; });
    return out;
  }

  const Steps& steps_;
  const Order& order_;
  std::vector<int32_t> best_;
  int64_t peak_ = 0;
  int32_t peak_at_ = -1;
};

}  // namespace

std::vector<std::pair<BufferId, BufferId>> overwrite_inputs(
    Steps& steps, const std::vector<std::pair<BufferId, BufferId>>& pairs) {
  std::vector<std::pair<BufferId, BufferId>> refused;
  Overwriter overwriter(steps, pairs);
  for (const auto& [output, input] : pairs) {
    if (!overwriter.overwrite(output, input)) refused.emplace_back(output, input);
  }
  return refused;
}

std::vector<int32_t> schedule(const Steps& steps) {
  const Order order(steps);
  Scheduler given(steps, order, false), hurried(steps, order, true);
  std::vector<int32_t> out = given.run(), other = hurried.run();
  return Mover(steps, order, std::move(hurried.peak() < given.peak() ? other : out)).run();
}

}  // namespace mithril::plan
