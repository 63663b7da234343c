// Single ops as machine code, on registers that are chosen already.
#pragma once
#include <map>
#include <utility>

#include <xbyak/xbyak.h>

#include "backends/cpu/jit/machine.h"

namespace mithril::cpu::jit {

/// Vector registers go by number; what a value takes of them follows from its form.
class Assembler : public Xbyak::CodeGenerator {
 public:
  Assembler(uint8_t* buffer, size_t size) : CodeGenerator(size, buffer) {}

  /// The shape of the code that follows.
  void use(const Machine& machine) {
    wide_ = machine.wide;
    lanes_ = machine.lanes;
    widest_ = machine.widest;
  }
  bool wide() const { return wide_; }
  int lanes() const { return lanes_; }
  int widest() const { return widest_; }
  /// Tells whether values of that form live in k-registers.
  bool in_mask_register(Form form) const { return wide_ && form == Form::kMask; }
  int bytes(Form form) const {
    switch (form) {
      case Form::k16: return 2 * lanes_;
      case Form::k32: return 4 * lanes_;
      case Form::k64: return 8 * lanes_;
      default: return widest_ * lanes_;
    }
  }
  static Xbyak::Xmm vector(int reg, int bytes) {
    if (bytes == 64) return Xbyak::Xmm(Xbyak::Operand::ZMM, reg);
    return Xbyak::Xmm(bytes == 32 ? Xbyak::Operand::YMM : Xbyak::Operand::XMM, reg);
  }
  Xbyak::Xmm vector(int reg, Form form) const { return vector(reg, bytes(form)); }

  /// `op` of the registers `a` (as many as it has operands) into d; kInMemory for the one operand
  /// that `memory` is. Leaves, stores and updates are not for here.
  void instruction(const Op& op, int d, const int* a, const Xbyak::Address* memory = nullptr);
  static constexpr int kInMemory = -2;
  /// Tells whether operand k may be in memory (one at a time).
  bool takes_memory(const Op& op, size_t k) const;
  /// d must be none of the operands.
  static bool clobbers_early(Code code);

  void copy(Form form, int d, int a);
  /// As many lanes as the form has.
  void load_constant(const Op& op, int d);
  /// A constant of 2, 4, 8, 16 or 32 bytes (the last: 8 bytes repeated), somewhere behind the code.
  Xbyak::Address constant(uint64_t bits, int size);
  /// The same in all lanes, as an operand in memory.
  Xbyak::Address constant_operand(const Op& op);
  /// 64 bytes of ones, then of zeros.
  Xbyak::Label& mask_table() { return mask_table_; }
  Xbyak::Address zeros() { return ptr[rip + mask_table_ + 64]; }
  /// Writes the constants; the code ends here.
  void finish();

 private:
  void arithmetic(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void fused(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void mask_instruction(const Op& op, int d, const int* a);
  void bitwise(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void integer(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void shift(const Op& op, int d, const int* a);
  void compare(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void blend(const Op& op, int d, const int* a, const Xbyak::Address* memory);
  void convert(const Op& op, int d, const int* a);
  void narrow(const Op& op, int d, const int* a);
  void lookup(const Op& op, int d, int index);

  /// Operand k of `width` bytes.
  struct Source {
    Xbyak::Xmm reg;
    const Xbyak::Address* memory;
    operator const Xbyak::Operand&() const {
      if (memory != nullptr) return *memory;
      return reg;
    }
  };
  static Source source(int reg, int width, const Xbyak::Address* memory) {
    return {vector(reg < 0 ? 0 : reg, width), reg == kInMemory ? memory : nullptr};
  }

  bool wide_ = false;
  int lanes_ = 8, widest_ = 4;
  std::map<std::pair<uint64_t, int>, Xbyak::Label> constants_;
  std::map<uint8_t, Xbyak::Label> tables_;
  Xbyak::Label mask_table_;
};

}  // namespace mithril::cpu::jit
