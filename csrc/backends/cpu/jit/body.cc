#include "backends/cpu/jit/body.h"

#include <algorithm>
#include <iterator>

#include "core/status.h"

namespace mithril::cpu::jit {

using Xbyak::Reg64;
using Xbyak::RegExp;

Body::Body(Assembler& as, const Machine& machine, Memory& memory, int accumulators, int ordered)
    : as_(as),
      machine_(machine),
      memory_(memory),
      accumulators_(accumulators),
      ordered_(ordered),
      places_(machine.ops.size()) {
  banks_[0].owner.assign(as.wide() ? 32 : 16, kFree);
  banks_[1].owner.assign(8, kFree);
  banks_[1].owner[0] = banks_[1].owner[1] = kReserved;  // no mask, and the mask of the tail
  for (Bank& bank : banks_) bank.locked.assign(bank.owner.size(), false);
  plan_uses();
  choose_pointers();
  choose_pins();
}

// ---- plans

void Body::plan_uses() {
  const size_t n = machine_.order.size();
  next_.assign(3 * n, kNever);
  uses_.assign(machine_.ops.size(), 0);
  coming_.assign(machine_.ops.size(), kNever);
  for (size_t p = n; p-- > 0;) {
    const Op& o = op(machine_.order[p]);
    for (size_t k = 3; k-- > 0;) {
      if (o.args[k] < 0) continue;
      int& coming = coming_[static_cast<size_t>(o.args[k])];
      next_[3 * p + k] = coming;
      ++uses_[static_cast<size_t>(o.args[k])];
      coming = static_cast<int>(p);
    }
  }
  first_ = coming_;
}

void Body::choose_pointers() {
  const Reg64 registers[] = {as_.rbx, as_.rbp, as_.r12, as_.r13, as_.r14, as_.r15};
  const auto add = [&](int slot) {
    const bool known = std::any_of(bases_.begin(), bases_.end(),
                                   [&](const auto& base) { return base.first == slot; });
    if (known || bases_.size() == std::size(registers)) return;
    bases_.emplace_back(slot, registers[bases_.size()]);
    saved_.push_back(bases_.back().second);
  };
  for (const Op& o : machine_.ops) {
    if (o.code == Code::kLoad || o.code == Code::kStore) add(o.slot);
  }
}

/// The most vectors that computed values and inputs take at once.
int Body::pressure() const {
  const auto counts = [&](int v) {
    const Op& o = op(v);
    const bool own = !is_leaf(o) || o.code == Code::kLoad;
    return own && !as_.in_mask_register(o.form);
  };
  int live = 0, most = 0;
  std::vector<bool> alive(machine_.ops.size(), false);
  for (size_t p = machine_.order.size(); p-- > 0;) {
    const int v = machine_.order[p];
    const auto at = static_cast<size_t>(v);
    if (alive[at]) --live;
    alive[at] = false;
    for (const int a : op(v).args) {
      if (a < 0 || alive[static_cast<size_t>(a)] || !counts(a)) continue;
      alive[static_cast<size_t>(a)] = true;
      ++live;
    }
    most = std::max(most, live);
  }
  return most;
}

void Body::choose_pins() {
  const auto registers = static_cast<int>(banks_[0].owner.size());
  int last = registers;
  for (size_t k = 0; k < machine_.reductions.size(); ++k) {
    accumulator_registers_.emplace_back();
    for (int a = 0; a < accumulators_of(k); ++a) {
      accumulator_registers_.back().push_back(--last);
      banks_[0].owner[static_cast<size_t>(last)] = kReserved;
    }
  }
  // An op has three operands, a result, and needs a temporary register at most.
  const int spare = 5;
  MITHRIL_CHECK(last >= spare + 1, "jit: {} accumulators", registers - last);
  const std::vector<int>& uses = uses_;
  std::vector<int> candidates;
  for (size_t v = 0; v < machine_.ops.size(); ++v) {
    const Op& o = machine_.ops[v];
    const bool fixed =
        o.code == Code::kConstant || o.code == Code::kRow || o.code == Code::kUniform;
    if (fixed && uses[v] > 0 && !as_.in_mask_register(o.form))
      candidates.push_back(static_cast<int>(v));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) {
    return uses[static_cast<size_t>(a)] > uses[static_cast<size_t>(b)];
  });
  const int room = last - std::max(pressure() + 2, spare);
  for (int k = 0; k < room && k < static_cast<int>(candidates.size()); ++k) {
    const int v = candidates[static_cast<size_t>(k)];
    place(v).reg = --last;
    place(v).pinned = true;
    banks_[0].owner[static_cast<size_t>(last)] = kReserved;
  }
  scratch_ = 0;
}

// ---- before the loop

void Body::prepare() {
  for (const auto& [slot, base] : bases_) as_.mov(base, as_.qword[as_.rdi + slot * 8]);
  for (size_t v = 0; v < machine_.ops.size(); ++v) {
    const Op& o = machine_.ops[v];
    Place& at = places_[v];
    if (o.code == Code::kConstant && at.pinned) as_.load_constant(o, at.reg);
    if (o.code != Code::kUniform || first_[v] == kNever) continue;
    as_.mov(as_.rax, as_.qword[as_.rdi + o.slot * 8]);
    const int reg = at.pinned ? at.reg : as_.in_mask_register(o.form) ? 2 : 1;
    memory_.broadcast(reg, o.form, o.dtype, as_.rax, scratch_);
    if (at.pinned) continue;
    at.home = new_home();
    at.at_home = true;
    memory_.spill(reg, o.form, at.home);
  }
}

void Body::load_rows(const Reg64& index, bool vectors, bool masked) {
  for (size_t v = 0; v < machine_.ops.size(); ++v) {
    const Op& o = machine_.ops[v];
    if (o.code != Code::kRow || first_[v] == kNever) continue;
    Place& at = places_[v];
    const int reg = at.pinned ? at.reg : as_.in_mask_register(o.form) ? 2 : 1;
    as_.mov(as_.rax, as_.qword[as_.rdi + o.slot * 8]);
    const RegExp from = as_.rax + index * static_cast<int>(core::size_of(o.dtype));
    if (vectors) {
      memory_.load(reg, o.form, o.dtype, from, masked, scratch_);
    } else {
      memory_.broadcast(reg, o.form, o.dtype, from, scratch_);
    }
    if (at.pinned) continue;
    if (at.home < 0) at.home = new_home();
    at.at_home = true;
    memory_.spill(reg, o.form, at.home);
  }
}

void Body::next_row(int slots) {
  std::vector<int> done;
  for (const Op& o : machine_.ops) {
    const bool is_lane = o.code == Code::kLoad || o.code == Code::kStore;
    if (!is_lane || std::find(done.begin(), done.end(), o.slot) != done.end()) continue;
    done.push_back(o.slot);
    const auto step = as_.qword[as_.rdi + (slots + o.slot) * 8];
    const auto base = std::find_if(bases_.begin(), bases_.end(),
                                   [&](const auto& entry) { return entry.first == o.slot; });
    if (base != bases_.end()) {
      as_.add(base->second, step);
    } else {
      as_.mov(as_.rax, step);
      as_.add(as_.qword[as_.rdi + o.slot * 8], as_.rax);
    }
  }
}

void Body::begin_accumulators() {
  for (size_t k = 0; k < machine_.reductions.size(); ++k) {
    Op identity;
    identity.code = Code::kConstant;
    identity.size = static_cast<uint8_t>(machine_.reductions[k].size);
    identity.form = identity.size == 8 ? Form::k64 : Form::k32;
    identity.bits = machine_.reductions[k].identity;
    for (const int reg : accumulator_registers_[k]) as_.load_constant(identity, reg);
  }
}

void Body::move_accumulator(size_t k, int a, const RegExp& at, bool out, bool masked) {
  const bool f64 = machine_.reductions[k].size == 8;
  const Form form = f64 ? Form::k64 : Form::k32;
  const core::DType dtype = f64 ? core::DType::kFloat64 : core::DType::kFloat32;
  const int reg = accumulator_registers_[k][static_cast<size_t>(a)];
  if (out) return memory_.store(reg, form, dtype, at, masked, scratch_);
  memory_.load(reg, form, dtype, at, masked, scratch_);
}

// ---- registers

int Body::new_home() {
  const int at = stack_;
  stack_ += 64;
  return at;
}

void Body::evict(Bank& bank, int reg) {
  int& owner = bank.owner[static_cast<size_t>(reg)];
  if (owner < 0) return;
  Place& at = place(owner);
  const Op& o = op(owner);
  if (!at.at_home && o.code != Code::kConstant && coming_[static_cast<size_t>(owner)] != kNever) {
    if (at.home < 0) at.home = new_home();
    memory_.spill(reg, o.form, at.home);
    at.at_home = true;
  }
  at.reg = -1;
  owner = kFree;
}

/// A register that nothing is in, locked until the end of the op.
int Body::take(Form form) {
  Bank& from = bank(form);
  int chosen = -1, furthest = -1;
  for (size_t r = 0; r < from.owner.size(); ++r) {
    if (from.owner[r] == kReserved || from.locked[r]) continue;
    const int owner = from.owner[r];
    const int next = owner == kFree ? kNever + 1 : coming_[static_cast<size_t>(owner)];
    if (next > furthest) {
      furthest = next;
      chosen = static_cast<int>(r);
    }
  }
  MITHRIL_CHECK(chosen >= 0, "jit: out of registers");
  evict(from, chosen);
  from.locked[static_cast<size_t>(chosen)] = true;
  return chosen;
}

int Body::temporary(bool needed) { return needed ? take(Form::k32) : -1; }

void Body::unlock() {
  for (Bank& bank : banks_) std::fill(bank.locked.begin(), bank.locked.end(), false);
}

const Reg64* Body::base_of(int slot) const {
  const auto found = std::find_if(bases_.begin(), bases_.end(),
                                  [&](const auto& base) { return base.first == slot; });
  return found == bases_.end() ? nullptr : &found->second;
}

// Tiles of an operand that is read in place lie one after the other; what is elsewhere, or behind
// the last tile, may be asked for, too.
void Body::prefetch(const Op& o, const Copy& copy) {
  const Reg64* base = base_of(o.slot);
  if (base == nullptr) return;
  const int size = static_cast<int>(core::size_of(o.dtype));
  as_.mov(as_.rax, as_.qword[as_.rsp + frame::kTile]);
  as_.add(as_.rax, as_.r8);
  as_.prefetcht0(as_.ptr[*base + as_.rax * size + copy.displacement * size]);
}

RegExp Body::lane(int slot, core::DType dtype, const Copy& copy) {
  const int size = static_cast<int>(core::size_of(dtype));
  const Reg64* base = base_of(slot);
  if (base == nullptr) as_.mov(as_.rax, as_.qword[as_.rdi + slot * 8]);
  return (base == nullptr ? as_.rax : *base) + as_.r8 * size + copy.displacement * size;
}

void Body::materialise(int value, int reg, const Copy& copy) {
  const Op& o = op(value);
  const Place& at = place(value);
  if (o.code == Code::kConstant) return as_.load_constant(o, reg);
  if (at.at_home) return memory_.reload(reg, o.form, at.home);
  MITHRIL_CHECK(o.code == Code::kLoad, "jit: a value is read before it is there");
  const int temp = temporary(Memory::load_needs_temp(as_, o.form));
  memory_.load(reg, o.form, o.dtype, lane(o.slot, o.dtype, copy), copy.masked, temp);
}

int Body::use(int value, const Copy& copy) {
  Place& at = place(value);
  const Op& o = op(value);
  if (o.code == Code::kAccumulator) {
    const auto& registers = accumulator_registers_[static_cast<size_t>(o.slot)];
    return registers[static_cast<size_t>(copy.accumulator) % registers.size()];
  }
  if (at.reg < 0) {
    const int reg = take(o.form);
    materialise(value, reg, copy);
    at.reg = reg;
    bank(o.form).owner[static_cast<size_t>(reg)] = value;
  }
  bank(o.form).locked[static_cast<size_t>(at.reg)] = true;
  return at.reg;
}

/// Its register is free once nothing reads it any more.
void Body::release(int value) {
  Place& at = place(value);
  if (at.pinned || at.reg < 0 || coming_[static_cast<size_t>(value)] != kNever) return;
  Bank& from = bank(op(value).form);
  from.owner[static_cast<size_t>(at.reg)] = kFree;
  from.locked[static_cast<size_t>(at.reg)] = false;
  at.reg = -1;
}

// Fused products write over one operand.
int Body::destination(const Op& o, const int* a) {
  const bool fused = o.code == Code::kFma || o.code == Code::kFms || o.code == Code::kFnma;
  Bank& in = bank(o.form);
  for (size_t k = 0; fused && k < 3; ++k) {
    if (a[k] >= 0 && in.owner[static_cast<size_t>(a[k])] == kFree) return a[k];
  }
  return take(o.form);
}

// Constants, what is on the stack, and inputs that are read once need no register of their own.
int Body::choose_memory_operand(const Op& o, const Copy& copy) {
  for (size_t k = 3; k-- > 0;) {
    const int v = o.args[k];
    if (v < 0 || !as_.takes_memory(o, k) || place(v).reg >= 0) continue;
    if (std::count(o.args.begin(), o.args.end(), v) > 1) continue;
    const Op& from = op(v);
    if (from.form != Form::k32 && from.form != Form::k64) continue;
    if (from.code == Code::kConstant) {
      if (from.bits != 0) return static_cast<int>(k);
    } else if (place(v).at_home) {
      return static_cast<int>(k);
    } else if (from.code == Code::kLoad && !copy.masked && core::size_of(from.dtype) >= 4) {
      // Only its first use is coming, so it has not been read.
      if (base_of(from.slot) != nullptr && uses_[static_cast<size_t>(v)] == 1)
        return static_cast<int>(k);
    }
  }
  return -1;
}

Xbyak::Address Body::memory_operand(int value, const Copy& copy) {
  const Op& o = op(value);
  if (o.code == Code::kConstant) return as_.constant_operand(o);
  if (place(value).at_home) return as_.ptr[as_.rsp + place(value).home];
  return as_.ptr[lane(o.slot, o.dtype, copy)];
}

void Body::emit_op(size_t position, const Copy& copy) {
  const int v = machine_.order[position];
  const Op& o = op(v);
  if (o.code == Code::kPrefetch) return prefetch(o, copy);
  int a[3] = {-1, -1, -1};
  const int in_memory = choose_memory_operand(o, copy);
  for (size_t k = 0; k < 3; ++k) {
    if (o.args[k] < 0) continue;
    a[k] = static_cast<int>(k) == in_memory ? Assembler::kInMemory : use(o.args[k], copy);
  }
  for (size_t k = 0; k < 3; ++k) {
    if (o.args[k] >= 0) coming_[static_cast<size_t>(o.args[k])] = next_[3 * position + k];
  }
  const auto release_all = [&] {
    for (const int arg : o.args) {
      if (arg >= 0) release(arg);
    }
  };
  if (o.code == Code::kStore) {
    const Form form = op(o.args[0]).form;
    const int temp = temporary(copy.masked || core::size_of(o.dtype) < 4);
    const auto at = lane(o.slot, o.dtype, copy);
    o.imm == kStreamedStore && !copy.masked
        ? memory_.stream(a[0], form, at)
        : memory_.store(a[0], form, o.dtype, at, copy.masked, temp);
    release_all();
  } else if (o.code == Code::kUpdate) {
    const auto& registers = accumulator_registers_[static_cast<size_t>(o.slot)];
    const int reg = registers[static_cast<size_t>(copy.accumulator) % registers.size()];
    memory_.update(reg, o.form, a[0], copy.masked, temporary(copy.masked && !as_.wide()));
    release_all();
  } else {
    int d;
    if (Assembler::clobbers_early(o.code)) {
      d = take(o.form);
      release_all();
    } else {
      release_all();
      d = destination(o, a);
    }
    if (o.code == Code::kExtern) {
      call_if_any(o, d, a);
    } else if (in_memory >= 0) {
      const auto from = memory_operand(o.args[static_cast<size_t>(in_memory)], copy);
      as_.instruction(o, d, a, &from);
    } else {
      as_.instruction(o, d, a);
    }
    Place& at = place(v);
    if (coming_[static_cast<size_t>(v)] != kNever) {
      at.reg = d;
      bank(o.form).owner[static_cast<size_t>(d)] = v;
    }
  }
  unlock();
}

// ---- rare cases

void Body::call_if_any(const Op& o, int d, const int* a) {
  as_.copy(o.form, d, a[2]);
  Call& call = calls_.emplace_back();
  call.function = o.function;
  call.x = a[1];
  call.d = d;
  const auto list = [](const Bank& bank, int without) {
    std::vector<int> out;
    for (int r = 0; r < static_cast<int>(bank.owner.size()); ++r) {
      if (bank.owner[static_cast<size_t>(r)] != kFree && r != without) out.push_back(r);
    }
    return out;
  };
  call.vectors = list(banks_[0], d);
  if (as_.wide()) {
    call.masks = list(banks_[1], 0);
    as_.kortestw(Xbyak::Opmask(a[0]), Xbyak::Opmask(a[0]));
  } else {
    as_.vmovmskps(as_.eax, as_.vector(a[0], Form::k32));
    as_.test(as_.eax, as_.eax);
  }
  as_.jnz(call.entry, Xbyak::CodeGenerator::T_NEAR);
  as_.L(call.back);
}

void Body::emit_rare() {
  for (Call& call : calls_) emit_call(call);
}

void Body::emit_call(Call& call) {
  const Reg64 numbers[] = {as_.rcx, as_.rdx, as_.rsi, as_.rdi, as_.r8, as_.r9, as_.r10, as_.r11};
  constexpr int kY = 0, kX = 64, kVectors = 128;
  const int bytes = as_.wide() ? 64 : 32;
  const int masks = kVectors + bytes * static_cast<int>(call.vectors.size());
  const int others = masks + 8 * static_cast<int>(call.masks.size());
  const int area = (others + 8 * static_cast<int>(std::size(numbers)) + 63) / 64 * 64;
  const auto home = [&](int at) { return as_.ptr[as_.rsp + at]; };
  const auto move_all = [&](bool out) {
    int at = kVectors;
    for (const int r : call.vectors) {
      const Xbyak::Xmm z = Assembler::vector(r, bytes);
      out ? as_.vmovups(home(at), z) : as_.vmovups(z, home(at));
      at += bytes;
    }
    for (const int k : call.masks) {
      out ? as_.kmovq(home(at), Xbyak::Opmask(k)) : as_.kmovq(Xbyak::Opmask(k), home(at));
      at += 8;
    }
    for (const Reg64& r : numbers) {
      out ? as_.mov(home(at), r) : as_.mov(r, home(at));
      at += 8;
    }
  };
  as_.L(call.entry);
  as_.sub(as_.rsp, area);
  as_.vmovups(home(kY), Assembler::vector(call.d, bytes));
  as_.vmovups(home(kX), Assembler::vector(call.x, bytes));
  move_all(true);
  as_.lea(as_.rdi, home(kY));
  as_.lea(as_.rsi, home(kX));
  as_.mov(as_.rdx, as_.rdi);
  as_.xor_(as_.ecx, as_.ecx);
  as_.mov(as_.r8d, as_.lanes());
  as_.mov(as_.rax, reinterpret_cast<size_t>(call.function));
  as_.call(as_.rax);
  move_all(false);
  as_.vmovups(Assembler::vector(call.d, bytes), home(kY));
  as_.add(as_.rsp, area);
  as_.jmp(call.back, Xbyak::CodeGenerator::T_NEAR);
}

void Body::emit(const Copy& copy) {
  coming_ = first_;
  for (size_t v = 0; v < places_.size(); ++v) {
    Place& at = places_[v];
    const Code code = machine_.ops[v].code;
    if (!at.pinned) at.reg = -1;
    if (code != Code::kRow && code != Code::kUniform) at.at_home = false;
  }
  for (Bank& bank : banks_) {
    for (int& owner : bank.owner) {
      if (owner >= 0) owner = kFree;
    }
  }
  for (size_t p = 0; p < machine_.order.size(); ++p) emit_op(p, copy);
}

}  // namespace mithril::cpu::jit
