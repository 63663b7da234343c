// The body of a compiled loop: one copy of a machine's ops, with registers chosen on the way.
#pragma once
#include <list>
#include <vector>

#include "backends/cpu/jit/memory.h"

namespace mithril::cpu::jit {

/// Tells where a copy of the body stands.
struct Copy {
  int accumulator = 0;   // which of several it adds to
  int displacement = 0;  // elements beyond the index
  bool masked = false;
};

/// Registers are given out op by op; what is needed last goes to the stack first. Leaves that are
/// the same in every iteration stay in registers as far as those reach (pinned) and are read from
/// the constants or their home on the stack otherwise.
class Body {
 public:
  /// Accumulators of each reduction: `ordered` ones where order matters, unless that is 0.
  Body(Assembler& as, const Machine& machine, Memory& memory, int accumulators, int ordered);

  /// Emits what comes before everything: base pointers of lane slots, uniforms, constants.
  void prepare();
  /// Row values: one element of each row slot, at `index` of it, or a vector from there on.
  void load_rows(const Xbyak::Reg64& index, bool vectors, bool masked);
  /// Moves the pointers of lane slots, of `slots` in all, to their next row.
  void next_row(int slots);
  void begin_accumulators();
  /// Accumulator `a` of reduction k from or to `at`.
  void move_accumulator(size_t k, int a, const Xbyak::RegExp& at, bool out, bool masked);
  void emit(const Copy& copy);
  /// Emits what copies jump to where a lane is a rare case; behind the function's return.
  void emit_rare();

  /// Free between copies.
  int scratch() const { return scratch_; }
  int stack_bytes() const { return stack_; }
  /// Callee-saved registers that hold base pointers.
  const std::vector<Xbyak::Reg64>& saved() const { return saved_; }
  int accumulators_of(size_t k) const {
    return machine_.reductions[k].ordered && ordered_ > 0 ? ordered_ : accumulators_;
  }

 private:
  struct Place {
    int reg = -1;
    int home = -1;  // on the stack
    bool at_home = false;
    bool pinned = false;
  };
  struct Bank {
    std::vector<int> owner;  // kFree, kReserved, or a value
    std::vector<bool> locked;
  };
  static constexpr int kFree = -1, kReserved = -2;
  static constexpr int kNever = 1 << 30;

  void plan_uses();
  void choose_pointers();
  void choose_pins();
  int pressure() const;

  const Op& op(int value) const { return machine_.ops[static_cast<size_t>(value)]; }
  Place& place(int value) { return places_[static_cast<size_t>(value)]; }
  Bank& bank(Form form) { return banks_[as_.in_mask_register(form) ? 1 : 0]; }
  int take(Form form);
  void evict(Bank& bank, int reg);
  int new_home();
  int use(int value, const Copy& copy);
  void release(int value);
  void materialise(int value, int reg, const Copy& copy);
  int destination(const Op& op, const int* a);
  int choose_memory_operand(const Op& op, const Copy& copy);
  Xbyak::Address memory_operand(int value, const Copy& copy);
  void emit_op(size_t position, const Copy& copy);
  void unlock();
  int temporary(bool needed);
  /// Null where that did not get a register.
  const Xbyak::Reg64* base_of(int slot) const;
  Xbyak::RegExp lane(int slot, core::DType dtype, const Copy& copy);
  void prefetch(const Op& op, const Copy& copy);
  void call_if_any(const Op& op, int d, const int* a);

  /// A call of `function`(x, y = d) into d that keeps what is in other registers.
  struct Call {
    Xbyak::Label entry, back;
    LaneFn function;
    int x, d;
    std::vector<int> vectors, masks;
  };
  void emit_call(Call& call);

  Assembler& as_;
  const Machine& machine_;
  Memory& memory_;
  int accumulators_, ordered_ = 0;
  int stack_ = frame::kHomes;
  int scratch_ = 0;
  std::vector<Place> places_;
  Bank banks_[2];
  std::vector<int> next_;   // by position × operand: the position of the value's next use
  std::vector<int> first_;  // by value
  std::vector<int> uses_;   // by value
  std::vector<int> coming_;
  std::vector<int> temporaries_;
  std::vector<std::vector<int>> accumulator_registers_;
  std::vector<std::pair<int, Xbyak::Reg64>> bases_;  // slot, register
  std::vector<Xbyak::Reg64> saved_;
  std::list<Call> calls_;
};

}  // namespace mithril::cpu::jit
