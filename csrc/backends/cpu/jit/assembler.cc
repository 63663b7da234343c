#include "backends/cpu/jit/assembler.h"

#include <algorithm>
#include <bit>

#include "core/status.h"
#include "tile/tables.h"

namespace mithril::cpu::jit {

using Xbyak::Opmask;
using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;

bool Assembler::clobbers_early(Code code) {
  return code == Code::kI64ToI32 || code == Code::kI32ToI16 || code == Code::kLookup ||
         code == Code::kExtern;
}

bool Assembler::takes_memory(const Op& op, size_t k) const {
  switch (op.code) {
    case Code::kAddF:
    case Code::kSubF:
    case Code::kMulF:
    case Code::kDivF:
    case Code::kMinF:
    case Code::kMaxF:
    case Code::kRangeF:
    case Code::kScaleF:
    case Code::kCompareF:
    case Code::kCompareI:
    case Code::kEqualI:
    case Code::kGreaterI: return k == 1;
    case Code::kAnd:
    case Code::kOr:
    case Code::kXor:
    case Code::kAndNot:
    case Code::kAddI:
    case Code::kSubI:
    case Code::kMulI:
    case Code::kMinI:
    case Code::kMaxI: return k == 1 && op.form != Form::kMask;
    case Code::kFma:
    case Code::kFms:
    case Code::kFnma: return k != 0;
    case Code::kBlend: return k == 1 && op.size != 2;
    default: return false;
  }
}

void Assembler::instruction(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  if (in_mask_register(op.form) && op.code != Code::kCompareF && op.code != Code::kCompareI) {
    return mask_instruction(op, d, a);
  }
  switch (op.code) {
    case Code::kAddF:
    case Code::kSubF:
    case Code::kMulF:
    case Code::kDivF:
    case Code::kMinF:
    case Code::kMaxF:
    case Code::kRangeF:
    case Code::kScaleF:
    case Code::kSqrtF:
    case Code::kRoundF: return arithmetic(op, d, a, memory);
    case Code::kFma:
    case Code::kFms:
    case Code::kFnma: return fused(op, d, a, memory);
    case Code::kCopy: return copy(op.form, d, a[0]);
    case Code::kAnd:
    case Code::kOr:
    case Code::kXor:
    case Code::kAndNot: return bitwise(op, d, a, memory);
    case Code::kCompareF:
    case Code::kCompareI:
    case Code::kEqualI:
    case Code::kGreaterI: return compare(op, d, a, memory);
    case Code::kShiftLeft:
    case Code::kShiftRight:
    case Code::kShiftRightLogical:
    case Code::kShiftLeftBy:
    case Code::kShiftRightBy:
    case Code::kShiftRightLogicalBy: return shift(op, d, a);
    case Code::kBlend: return blend(op, d, a, memory);
    case Code::kI64ToI32:
    case Code::kI32ToI16: return narrow(op, d, a);
    case Code::kLookup: return lookup(op, d, a[0]);
    case Code::kAddI:
    case Code::kSubI:
    case Code::kMulI:
    case Code::kMinI:
    case Code::kMaxI:
    case Code::kAbsI:
    case Code::kMultiplyLow32: return integer(op, d, a, memory);
    default: return convert(op, d, a);
  }
}

void Assembler::copy(Form form, int d, int a) {
  if (d == a) return;
  if (in_mask_register(form)) return kmovq(Opmask(d), Opmask(a));
  vmovaps(vector(d, form), vector(a, form));
}

void Assembler::arithmetic(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const Xmm z = vector(d, op.form), x = vector(a[0], op.form);
  const Source y = source(a[1], bytes(op.form), memory);
  const bool f64 = op.size == 8;
  switch (op.code) {
    case Code::kAddF: return f64 ? vaddpd(z, x, y) : vaddps(z, x, y);
    case Code::kSubF: return f64 ? vsubpd(z, x, y) : vsubps(z, x, y);
    case Code::kMulF: return f64 ? vmulpd(z, x, y) : vmulps(z, x, y);
    case Code::kDivF: return f64 ? vdivpd(z, x, y) : vdivps(z, x, y);
    case Code::kMinF: return f64 ? vminpd(z, x, y) : vminps(z, x, y);
    case Code::kMaxF: return f64 ? vmaxpd(z, x, y) : vmaxps(z, x, y);
    case Code::kRangeF: return f64 ? vrangepd(z, x, y, op.imm) : vrangeps(z, x, y, op.imm);
    case Code::kScaleF: return f64 ? vscalefpd(z, x, y) : vscalefps(z, x, y);
    case Code::kSqrtF: return f64 ? vsqrtpd(z, x) : vsqrtps(z, x);
    default: break;
  }
  if (wide_) return f64 ? vrndscalepd(z, x, op.imm) : vrndscaleps(z, x, op.imm);
  return f64 ? vroundpd(z, x, op.imm) : vroundps(z, x, op.imm);
}

void Assembler::fused(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const auto in = [&](int reg) { return vector(reg, op.form); };
  const bool f64 = op.size == 8;
  const auto times = [&](const Xmm& x, const Xmm& y, const Xbyak::Operand& z) {  // x = x y + z
    switch (op.code) {
      case Code::kFma: return f64 ? vfmadd213pd(x, y, z) : vfmadd213ps(x, y, z);
      case Code::kFms: return f64 ? vfmsub213pd(x, y, z) : vfmsub213ps(x, y, z);
      default: return f64 ? vfnmadd213pd(x, y, z) : vfnmadd213ps(x, y, z);
    }
  };
  const auto onto = [&](const Xmm& z, const Xmm& x, const Xbyak::Operand& y) {  // z = x y + z
    switch (op.code) {
      case Code::kFma: return f64 ? vfmadd231pd(z, x, y) : vfmadd231ps(z, x, y);
      case Code::kFms: return f64 ? vfmsub231pd(z, x, y) : vfmsub231ps(z, x, y);
      default: return f64 ? vfnmadd231pd(z, x, y) : vfnmadd231ps(z, x, y);
    }
  };
  const Source y = source(a[1], bytes(op.form), memory), z = source(a[2], bytes(op.form), memory);
  if (a[2] == kInMemory) {
    if (d == a[1]) return times(in(d), in(a[0]), z);
    copy(op.form, d, a[0]);
    return times(in(d), in(a[1]), z);
  }
  if (d == a[0] && a[1] != kInMemory) return times(in(d), in(a[1]), z);
  if (d == a[1]) return times(in(d), in(a[0]), z);
  if (d == a[0] && d != a[2]) {  // x = x [y] + z
    const Xmm x = in(d), w = in(a[2]);
    switch (op.code) {
      case Code::kFma: return f64 ? vfmadd132pd(x, w, y) : vfmadd132ps(x, w, y);
      case Code::kFms: return f64 ? vfmsub132pd(x, w, y) : vfmsub132ps(x, w, y);
      default: return f64 ? vfnmadd132pd(x, w, y) : vfnmadd132ps(x, w, y);
    }
  }
  copy(op.form, d, a[2]);
  onto(in(d), in(a[0]), y);
}

void Assembler::mask_instruction(const Op& op, int d, const int* a) {
  const Opmask z(d), x(a[0]), y(a[1] >= 0 ? a[1] : 0);
  switch (op.code) {
    case Code::kAnd: return kandq(z, x, y);
    case Code::kOr: return korq(z, x, y);
    case Code::kXor: return kxorq(z, x, y);
    case Code::kAndNot: return kandnq(z, x, y);
    case Code::kNot: return knotq(z, x);
    default: return copy(op.form, d, a[0]);
  }
}

void Assembler::bitwise(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const Xmm z = vector(d, op.form), x = vector(a[0], op.form);
  const Source y = source(a[1], bytes(op.form), memory);
  const bool f64 = op.size == 8;  // of a constant in memory, that is what is repeated
  switch (op.code) {
    case Code::kAnd: return f64 ? vandpd(z, x, y) : vandps(z, x, y);
    case Code::kOr: return f64 ? vorpd(z, x, y) : vorps(z, x, y);
    case Code::kXor: return f64 ? vxorpd(z, x, y) : vxorps(z, x, y);
    default: return f64 ? vandnpd(z, x, y) : vandnps(z, x, y);
  }
}

void Assembler::integer(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const Xmm z = vector(d, op.form), x = vector(a[0], op.form);
  const Source y = source(a[1], bytes(op.form), memory);
  const bool is_long = op.size == 8;
  switch (op.code) {
    case Code::kAddI: return is_long ? vpaddq(z, x, y) : vpaddd(z, x, y);
    case Code::kSubI: return is_long ? vpsubq(z, x, y) : vpsubd(z, x, y);
    case Code::kMulI: return is_long ? vpmullq(z, x, y) : vpmulld(z, x, y);
    case Code::kMinI: return is_long ? vpminsq(z, x, y) : vpminsd(z, x, y);
    case Code::kMaxI: return is_long ? vpmaxsq(z, x, y) : vpmaxsd(z, x, y);
    case Code::kAbsI: return is_long ? vpabsq(z, x) : vpabsd(z, x);
    default: return vpmuludq(z, x, y);
  }
}

void Assembler::shift(const Op& op, int d, const int* a) {
  const Xmm z = vector(d, op.form), x = vector(a[0], op.form);
  const Xmm y = vector(a[1] >= 0 ? a[1] : 0, op.form);
  const bool is_long = op.size == 8;
  switch (op.code) {
    case Code::kShiftLeft: return is_long ? vpsllvq(z, x, y) : vpsllvd(z, x, y);
    case Code::kShiftRight: return is_long ? vpsravq(z, x, y) : vpsravd(z, x, y);
    case Code::kShiftRightLogical: return is_long ? vpsrlvq(z, x, y) : vpsrlvd(z, x, y);
    case Code::kShiftLeftBy: return is_long ? vpsllq(z, x, op.imm) : vpslld(z, x, op.imm);
    case Code::kShiftRightBy: return vpsrad(z, x, op.imm);
    default: return is_long ? vpsrlq(z, x, op.imm) : vpsrld(z, x, op.imm);
  }
}

void Assembler::compare(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const int width = op.size * lanes_;
  const Xmm x = vector(a[0], width);
  const Source y = source(a[1], width, memory);
  const bool is_long = op.size == 8;
  if (op.code == Code::kCompareI) {
    return is_long ? vpcmpq(Opmask(d), x, y, op.imm) : vpcmpd(Opmask(d), x, y, op.imm);
  }
  if (op.code == Code::kCompareF && wide_) {
    return is_long ? vcmppd(Opmask(d), x, y, op.imm) : vcmpps(Opmask(d), x, y, op.imm);
  }
  const Xmm z = vector(d, width);
  if (op.code == Code::kCompareF)
    return is_long ? vcmppd(z, x, y, op.imm) : vcmpps(z, x, y, op.imm);
  if (op.code == Code::kEqualI) return is_long ? vpcmpeqq(z, x, y) : vpcmpeqd(z, x, y);
  return is_long ? vpcmpgtq(z, x, y) : vpcmpgtd(z, x, y);
}

void Assembler::blend(const Op& op, int d, const int* a, const Xbyak::Address* memory) {
  const Xmm z = vector(d, op.form), f = vector(a[2], op.form);
  const Source t = source(a[1], bytes(op.form), memory);
  if (wide_) {
    const Xmm masked = z | Opmask(a[0]);
    if (op.size == 2) return vpblendmw(masked, f, t);
    return op.size == 8 ? vblendmpd(masked, f, t) : vblendmps(masked, f, t);
  }
  const Xmm mask = vector(a[0], op.form);
  if (op.size == 2) return vpblendvb(z, f, t, mask);
  return op.size == 8 ? vblendvpd(z, f, t, mask) : vblendvps(z, f, t, mask);
}

void Assembler::convert(const Op& op, int d, const int* a) {
  const Xmm z = vector(d, op.form);
  const Xmm x16 = vector(a[0], 2 * lanes_), x32 = vector(a[0], 4 * lanes_),
            x64 = vector(a[0], 8 * lanes_);
  switch (op.code) {
    case Code::kF32ToF64: return vcvtps2pd(z, x32);
    case Code::kF64ToF32: return vcvtpd2ps(z, x64);
    case Code::kI32ToF32: return vcvtdq2ps(z, x32);
    case Code::kI32ToF64: return vcvtdq2pd(z, x32);
    case Code::kF32ToI32: return vcvttps2dq(z, x32);
    case Code::kF64ToI32: return vcvttpd2dq(z, x64);
    case Code::kF32ToI64: return vcvttps2qq(z, x32);
    case Code::kF64ToI64: return vcvttpd2qq(z, x64);
    case Code::kI64ToF32: return vcvtqq2ps(z, x64);
    case Code::kI64ToF64: return vcvtqq2pd(z, x64);
    case Code::kI32ToI64: return vpmovsxdq(z, x32);
    case Code::kU16ToI32: return vpmovzxwd(z, x16);
    case Code::kI16ToI32: return vpmovsxwd(z, x16);
    case Code::kF16ToF32: return vcvtph2ps(z, x16);
    case Code::kF32ToF16: return vcvtps2ph(z, x32, 0);
    default: break;
  }
  MITHRIL_CHECK(false, "jit: no code for op {}", static_cast<int>(op.code));
}

void Assembler::narrow(const Op& op, int d, const int* a) {
  const Xmm z = vector(d, op.form);
  if (op.code == Code::kI64ToI32) {
    if (wide_) return vpmovqd(z, vector(a[0], 8 * lanes_));
    vextractf128(Xmm(d), Ymm(a[0]), 1);
    return vshufps(Xmm(d), Xmm(a[0]), Xmm(d), 0x88);
  }
  if (wide_) return vpmovdw(z, vector(a[0], 4 * lanes_));
  if (lanes_ == 8) {
    vextractf128(Xmm(d), Ymm(a[0]), 1);
  } else {
    vmovaps(Xmm(d), Xmm(a[0]));
  }
  return op.imm == kSigned ? vpackssdw(Xmm(d), Xmm(a[0]), Xmm(d))
                           : vpackusdw(Xmm(d), Xmm(a[0]), Xmm(d));
}

// On whole registers also where fewer lanes count.
void Assembler::lookup(const Op& op, int d, int index) {
  const auto table = rip + tables_[op.imm];
  if (!wide_) return vpermps(Ymm(d), Ymm(index), ptr[table + 32 * static_cast<int>(op.bits)]);
  vmovups(Zmm(d), ptr[table]);
  vpermt2ps(Zmm(d), Zmm(index), ptr[table + 64]);
}

void Assembler::load_constant(const Op& op, int d) {
  if (op.form == Form::kMask && wide_) {
    const Opmask k(d);
    return op.bits != 0 ? kxnorq(k, k, k) : kxorq(k, k, k);
  }
  const Xmm z = vector(d, op.form);
  const int size = op.form == Form::kMask ? widest_ : op.size;
  const uint64_t bits = op.form != Form::kMask ? op.bits : op.bits != 0 ? ~uint64_t{0} : 0;
  if (bits == 0) return vxorps(z, z, z);
  switch (size) {
    case 2: return vpbroadcastw(z, constant(bits, 2));
    case 4: return vbroadcastss(z, constant(bits, 4));
    default:
      return z.isXMM() ? vmovddup(z, constant(bits, 8))
                       : vbroadcastsd(Ymm(d, z.getKind(), z.getBit()), constant(bits, 8));
  }
}

Xbyak::Address Assembler::constant_operand(const Op& op) {
  if (wide_) return ptr_b[rip + constants_[{op.bits, op.size}]];
  return constant(op.size == 8 ? op.bits : op.bits | op.bits << 32, 32);
}

Xbyak::Address Assembler::constant(uint64_t bits, int size) {
  return ptr[rip + constants_[{bits, size}]];
}

void Assembler::finish() {
  align(64);
  L(mask_table_);
  for (int k = 0; k < 8; ++k) dq(~uint64_t{0});
  for (int k = 0; k < 8; ++k) dq(0);
  for (auto& [table, label] : tables_) {
    L(label);
    for (const float x : tile::kTables[table]) dd(std::bit_cast<uint32_t>(x));
  }
  for (auto& [key, label] : constants_) {
    L(label);
    // At least 8 bytes each, so that all stay aligned.
    for (int written = 0; written < std::max(key.second, 8); written += 8) dq(key.first);
  }
}

}  // namespace mithril::cpu::jit
