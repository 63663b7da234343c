#include "backends/cpu/jit/function.h"

#include <algorithm>

#include "backends/cpu/jit/body.h"

namespace mithril::cpu::jit {
namespace {

using Xbyak::CodeGenerator;
using Xbyak::Label;

constexpr int kShortBody = 8;  // ops; more are enough work between two uses of an accumulator
constexpr auto kNear = CodeGenerator::T_NEAR;

/// Registers: rdi pointers, rdx inner, r8 index of the element, r9 its end, r10 row (kInside,
/// kBlock) or column (kAcross), r11 and rax for anything, rcx elements left in a tail. rsi: outer
/// end.
class Function {
 public:
  Function(Assembler& as, const Machine& machine, Walk walk, int slots)
      : as_(as),
        machine_(machine),
        walk_(walk),
        slots_(slots),
        memory_(as),
        copies_(choose_copies()),
        body_(as, machine, memory_, copies_, ordered()) {}

  std::vector<int32_t> emit() {
    enter();
    body_.prepare();
    switch (walk_) {
      case Walk::kFlat: flat(); break;
      case Walk::kInside: inside(); break;
      case Walk::kAcross: across(); break;
      case Walk::kBlock: block(); break;
    }
    leave();
    std::vector<int32_t> partials;
    for (size_t k = 0; k < machine_.reductions.size(); ++k) {
      partials.push_back(walk_ == Walk::kInside ? body_.accumulators_of(k) * machine_.lanes : 1);
    }
    return partials;
  }

 private:
  int ordered() const {
    const auto lanes = static_cast<int>(tile::kLanesWidth) / machine_.lanes;
    return walk_ == Walk::kInside ? std::max(lanes, 1) : 0;
  }

  // More than one hides the latency of accumulators, or gives each of the 16 lanes one.
  int choose_copies() const {
    const bool is_short = machine_.order.size() <= kShortBody;
    const auto reductions = static_cast<int>(machine_.reductions.size());
    if (reductions == 0) return is_short && walk_ != Walk::kAcross ? 2 : 1;
    const bool rows = std::any_of(machine_.ops.begin(), machine_.ops.end(),
                                  [](const Op& op) { return op.code == Code::kRow; });
    if (walk_ == Walk::kAcross) return is_short && !rows && reductions <= 2 ? 4 : 1;
    const bool in_order = std::any_of(machine_.reductions.begin(), machine_.reductions.end(),
                                      [](const Accumulated& r) { return r.ordered; });
    const int least = in_order ? ordered() : 1;
    return is_short && reductions <= 2 ? std::max(least, 2) : least;
  }

  // ---- frame

  void enter() {
    for (const auto& reg : body_.saved()) as_.push(reg);
    as_.mov(as_.rax, as_.rsp);
    as_.sub(as_.rsp, 0x7fffffff);  // patched when the frame is known
    patch_ = as_.getSize() - 4;
    as_.and_(as_.rsp, -64);
    as_.mov(as_.qword[as_.rsp + frame::kCaller], as_.rax);
  }

  void leave() {
    as_.rewrite(patch_, static_cast<uint64_t>(body_.stack_bytes() + 64), 4);
    as_.mov(as_.rsp, as_.qword[as_.rsp + frame::kCaller]);
    const auto& saved = body_.saved();
    for (size_t k = saved.size(); k-- > 0;) as_.pop(saved[k]);
    as_.vzeroupper();
    as_.ret();
    body_.emit_rare();
  }

  // ---- points side by side: from r8 to r9

  void run() {
    const int step = copies_ * machine_.lanes;
    Label main, tail, done;
    as_.lea(as_.r11, as_.ptr[as_.r9 - step]);
    as_.cmp(as_.r8, as_.r11);
    as_.jg(tail, kNear);
    as_.L(main);
    for (int k = 0; k < copies_; ++k) body_.emit({k, k * machine_.lanes, false});
    as_.add(as_.r8, step);
    as_.cmp(as_.r8, as_.r11);
    as_.jle(main, kNear);
    as_.L(tail);
    as_.mov(as_.rcx, as_.r9);
    as_.sub(as_.rcx, as_.r8);
    as_.jle(done, kNear);
    for (int k = 0; k < copies_; ++k) {
      memory_.set_mask(body_.scratch());
      body_.emit({k, 0, true});
      as_.add(as_.r8, machine_.lanes);
      as_.sub(as_.rcx, machine_.lanes);
      if (k + 1 < copies_) as_.jle(done, kNear);
    }
    as_.L(done);
  }

  void flat() {
    note_tile();
    as_.mov(as_.r9, as_.rax);
    as_.xor_(as_.r8d, as_.r8d);
    run();
  }

  void note_tile() {
    as_.mov(as_.rax, as_.rdx);
    as_.imul(as_.rax, as_.rsi);
    as_.mov(as_.qword[as_.rsp + frame::kTile], as_.rax);
  }

  void inside() {
    Label row, end;
    note_tile();
    as_.xor_(as_.r10d, as_.r10d);
    as_.xor_(as_.r9d, as_.r9d);
    as_.test(as_.rsi, as_.rsi);
    as_.jle(end, kNear);
    as_.L(row);
    as_.mov(as_.r8, as_.r9);
    as_.add(as_.r9, as_.rdx);
    body_.load_rows(as_.r10, false, false);
    body_.begin_accumulators();
    run();
    store_partials();
    as_.inc(as_.r10);
    as_.cmp(as_.r10, as_.rsi);
    as_.jl(row, kNear);
    as_.L(end);
  }

  // Rows where the strides of each slot put them.
  void block() {
    Label row, end;
    as_.xor_(as_.r10d, as_.r10d);
    as_.test(as_.rsi, as_.rsi);
    as_.jle(end, kNear);
    as_.L(row);
    as_.xor_(as_.r8d, as_.r8d);
    as_.mov(as_.r9, as_.rdx);
    body_.load_rows(as_.r10, false, false);
    run();
    body_.next_row(slots_);
    as_.inc(as_.r10);
    as_.cmp(as_.r10, as_.rsi);
    as_.jl(row, kNear);
    as_.L(end);
  }

  void store_partials() {
    for (size_t k = 0; k < machine_.reductions.size(); ++k) {
      const Accumulated& r = machine_.reductions[k];
      const int count = body_.accumulators_of(k), bytes = machine_.lanes * r.size;
      as_.mov(as_.rax, as_.qword[as_.rdi + r.slot * 8]);
      as_.imul(as_.r11, as_.r10, count * bytes);
      for (int a = 0; a < count; ++a) {
        body_.move_accumulator(k, a, as_.rax + as_.r11 + a * bytes, true, false);
      }
    }
  }

  // ---- columns of rows: from begin to end for each

  void across() {
    as_.imul(as_.rcx, as_.rdx);
    as_.imul(as_.rsi, as_.rdx);
    as_.mov(as_.qword[as_.rsp + frame::kBegin], as_.rcx);
    as_.mov(as_.qword[as_.rsp + frame::kEnd], as_.rsi);
    as_.xor_(as_.r10d, as_.r10d);
    Label whole, rest, end;
    const int step = copies_ * machine_.lanes;
    as_.L(whole);
    as_.lea(as_.rax, as_.ptr[as_.r10 + step]);
    as_.cmp(as_.rax, as_.rdx);
    as_.jg(rest, kNear);
    column(copies_, false);
    as_.add(as_.r10, step);
    as_.jmp(whole, kNear);
    as_.L(rest);
    as_.mov(as_.rcx, as_.rdx);
    as_.sub(as_.rcx, as_.r10);
    as_.jle(end, kNear);
    memory_.set_mask(body_.scratch());
    column(1, true);
    as_.add(as_.r10, machine_.lanes);
    as_.jmp(rest, kNear);
    as_.L(end);
  }

  void column(int copies, bool masked) {
    body_.load_rows(as_.r10, true, masked);
    move_accumulators(copies, false, masked);
    as_.mov(as_.r8, as_.qword[as_.rsp + frame::kBegin]);
    as_.mov(as_.r9, as_.qword[as_.rsp + frame::kEnd]);
    as_.add(as_.r8, as_.r10);
    as_.add(as_.r9, as_.r10);
    Label again;
    as_.L(again);
    for (int k = 0; k < copies; ++k) body_.emit({k, k * machine_.lanes, masked});
    as_.add(as_.r8, as_.rdx);
    as_.cmp(as_.r8, as_.r9);
    as_.jl(again, kNear);
    move_accumulators(copies, true, masked);
  }

  void move_accumulators(int copies, bool out, bool masked) {
    for (size_t k = 0; k < machine_.reductions.size(); ++k) {
      const Accumulated& r = machine_.reductions[k];
      as_.mov(as_.rax, as_.qword[as_.rdi + r.slot * 8]);
      for (int a = 0; a < copies; ++a) {
        const auto at = as_.rax + as_.r10 * r.size + a * machine_.lanes * r.size;
        body_.move_accumulator(k, a, at, out, masked);
      }
    }
  }

  Assembler& as_;
  const Machine& machine_;
  Walk walk_;
  int slots_;
  Memory memory_;
  int copies_;
  Body body_;
  size_t patch_ = 0;
};

}  // namespace

std::vector<int32_t> emit_function(Assembler& as, const Machine& machine, Walk walk, int slots) {
  as.use(machine);
  return Function(as, machine, walk, slots).emit();
}

}  // namespace mithril::cpu::jit
