#include "backends/cpu/jit/memory.h"

namespace mithril::cpu::jit {

using core::DType;
using Xbyak::Opmask;
using Xbyak::RegExp;
using Xbyak::Xmm;
using Xbyak::Ymm;

namespace {

const Opmask kTail(1);

bool is_plain(DType dtype) { return core::size_of(dtype) >= 4; }

}  // namespace

void Memory::set_mask(int temp) {
  as_.mov(as_.eax, as_.lanes());
  as_.cmp(as_.rcx, as_.rax);
  as_.cmovl(as_.rax, as_.rcx);
  as_.mov(as_.qword[as_.rsp + frame::kCount], as_.rax);
  if (as_.wide()) {
    as_.mov(as_.r11d, -1);
    as_.bzhi(as_.r11d, as_.r11d, as_.eax);
    return as_.kmovd(kTail, as_.r11d);
  }
  const Ymm mask(temp);
  for (const int size : {4, 8}) {
    if (size * as_.lanes() > 32) continue;
    as_.lea(as_.r11, as_.ptr[as_.rip + as_.mask_table()]);
    as_.add(as_.r11, 64);
    as_.mov(as_.qword[as_.rsp + frame::kSaved], as_.rax);
    as_.shl(as_.rax, size == 4 ? 2 : 3);
    as_.sub(as_.r11, as_.rax);
    as_.mov(as_.rax, as_.qword[as_.rsp + frame::kSaved]);
    as_.vmovups(mask, as_.ptr[as_.r11]);
    as_.vmovups(as_.ptr[as_.rsp + mask_home(size)], mask);
  }
}

// The first kCount elements between memory and the bounce buffer.
void Memory::bounce(bool out, const RegExp& at, int size) {
  as_.lea(as_.r11, as_.ptr[at]);
  as_.mov(as_.qword[as_.rsp + frame::kSaved], as_.rcx);
  as_.mov(as_.rcx, as_.qword[as_.rsp + frame::kCount]);
  Xbyak::Label again;
  as_.L(again);
  const RegExp outer = as_.r11 + as_.rcx * size - size;
  const RegExp inner = as_.rsp + as_.rcx * size + (frame::kBounce - size);
  const RegExp from = out ? inner : outer, to = out ? outer : inner;
  if (size == 1) {
    as_.movzx(as_.eax, as_.byte[from]);
    as_.mov(as_.byte[to], as_.al);
  } else {
    as_.movzx(as_.eax, as_.word[from]);
    as_.mov(as_.word[to], as_.ax);
  }
  as_.dec(as_.rcx);
  as_.jnz(again);
  as_.mov(as_.rcx, as_.qword[as_.rsp + frame::kSaved]);
}

bool Memory::load_needs_temp(const Assembler& as, Form form) {
  return form == Form::kMask && as.wide();
}

void Memory::load(int d, Form form, DType dtype, const RegExp& at, bool masked, int temp) {
  if (!masked) return load_whole(d, form, dtype, at, temp);
  if (as_.wide()) return load_masked_wide(d, form, dtype, at, temp);
  if (is_plain(dtype)) {
    const Xmm z = as_.vector(d, form);
    const int size = static_cast<int>(core::size_of(dtype));
    as_.vmovups(z, as_.ptr[as_.rsp + mask_home(size)]);
    return size == 8 ? as_.vpmaskmovq(z, z, as_.ptr[at]) : as_.vpmaskmovd(z, z, as_.ptr[at]);
  }
  bounce(false, at, static_cast<int>(core::size_of(dtype)));
  load_whole(d, form, dtype, as_.rsp + frame::kBounce, temp);
}

void Memory::load_whole(int d, Form form, DType dtype, const RegExp& at, int temp) {
  const auto from = as_.ptr[at];
  if (form == Form::kMask && as_.wide()) {
    as_.lanes() == 16 ? as_.vmovdqu8(Xmm(temp), from) : as_.vmovq(Xmm(temp), from);
    return as_.vptestmb(Opmask(d), Xmm(temp), Xmm(temp));
  }
  const Xmm z = as_.vector(d, form);
  switch (dtype) {
    case DType::kBool: {
      as_.widest() == 8 ? as_.vpmovzxbq(z, from) : as_.vpmovzxbd(z, from);
      return as_.widest() == 8 ? as_.vpcmpgtq(z, z, as_.zeros()) : as_.vpcmpgtd(z, z, as_.zeros());
    }
    case DType::kUInt8: return as_.vpmovzxbd(z, from);
    case DType::kInt8: return as_.vpmovsxbd(z, from);
    case DType::kInt16: return as_.vpmovsxwd(z, from);
    case DType::kFloat16:
    case DType::kBFloat16: return as_.lanes() == 4 ? as_.vmovq(z, from) : as_.vmovups(z, from);
    default: return as_.vmovups(z, from);
  }
}

void Memory::load_masked_wide(int d, Form form, DType dtype, const RegExp& at, int temp) {
  const auto from = as_.ptr[at];
  if (form == Form::kMask) {
    as_.vmovdqu8(Xmm(temp) | kTail | as_.T_z, from);
    return as_.vptestmb(Opmask(d), Xmm(temp), Xmm(temp));
  }
  const Xmm z = as_.vector(d, form) | kTail | as_.T_z;
  switch (dtype) {
    case DType::kUInt8: return as_.vpmovzxbd(z, from);
    case DType::kInt8: return as_.vpmovsxbd(z, from);
    case DType::kInt16: return as_.vpmovsxwd(z, from);
    case DType::kFloat16:
    case DType::kBFloat16: return as_.vmovdqu16(z, from);
    default: break;
  }
  core::size_of(dtype) == 8 ? as_.vmovupd(z, from) : as_.vmovups(z, from);
}

void Memory::store(int s, Form form, DType dtype, const RegExp& at, bool masked, int temp) {
  if (as_.wide()) return store_wide(s, form, dtype, at, masked, temp);
  if (!masked) return store_whole(s, form, dtype, at, temp);
  const int size = static_cast<int>(core::size_of(dtype));
  if (is_plain(dtype)) {
    const Xmm x = as_.vector(s, form), mask = as_.vector(temp, form);
    as_.vmovups(mask, as_.ptr[as_.rsp + mask_home(size)]);
    return size == 8 ? as_.vpmaskmovq(as_.ptr[at], mask, x) : as_.vpmaskmovd(as_.ptr[at], mask, x);
  }
  store_whole(s, form, dtype, as_.rsp + frame::kBounce, temp);
  bounce(true, at, size);
}

void Memory::stream(int s, Form form, const RegExp& at) {
  as_.vmovntps(as_.ptr[at], as_.vector(s, form));
}

void Memory::store_wide(int s, Form form, DType dtype, const RegExp& at, bool masked, int temp) {
  const auto to = masked ? as_.ptr[at] | kTail : as_.ptr[at];
  if (form == Form::kMask) {
    const Xmm ones(temp);
    as_.vmovdqu8(ones | Opmask(s) | as_.T_z, as_.constant(0x0101010101010101, 16));
    if (masked) return as_.vmovdqu8(to, ones);
    return as_.lanes() == 16 ? as_.vmovups(to, ones) : as_.vmovq(to, ones);
  }
  const Xmm x = as_.vector(s, form);
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8: return as_.vpmovdb(to, x);
    case DType::kInt16: return as_.vpmovdw(to, x);
    case DType::kFloat16:
    case DType::kBFloat16: return as_.vmovdqu16(to, x);
    default: break;
  }
  core::size_of(dtype) == 8 ? as_.vmovupd(to, x) : as_.vmovups(to, x);
}

void Memory::store_whole(int s, Form form, DType dtype, const RegExp& at, int temp) {
  const auto to = as_.ptr[at];
  if (is_plain(dtype)) return as_.vmovups(to, as_.vector(s, form));
  const bool four = as_.lanes() == 4;
  if (form == Form::k16) {
    return four ? as_.vmovq(to, Xmm(s)) : as_.vmovups(to, Xmm(s));
  }
  const Xmm t(temp);
  // Lanes of 32 bits, four or eight, into words and bytes; all are in range.
  if (form == Form::kMask && as_.widest() == 8) {
    as_.vextractf128(t, Ymm(s), 1);
    as_.vshufps(t, Xmm(s), t, 0x88);
    as_.vpackssdw(t, t, t);
  } else if (four) {
    as_.vpackssdw(t, Xmm(s), Xmm(s));
  } else {
    as_.vextractf128(t, Ymm(s), 1);
    as_.vpackssdw(t, Xmm(s), t);
  }
  if (dtype == DType::kInt16) return four ? as_.vmovq(to, t) : as_.vmovups(to, t);
  dtype == DType::kUInt8 ? as_.vpackuswb(t, t, t) : as_.vpacksswb(t, t, t);
  if (dtype == DType::kBool) as_.vpabsb(t, t);
  four ? as_.vmovd(to, t) : as_.vmovq(to, t);
}

void Memory::broadcast(int d, Form form, DType dtype, const RegExp& at, int temp) {
  const auto from = as_.ptr[at];
  if (form == Form::kMask) {
    as_.movzx(as_.eax, as_.byte[at]);
    as_.neg(as_.rax);
    if (as_.wide()) return as_.kmovq(Opmask(d), as_.rax);
    as_.vmovq(Xmm(d), as_.rax);
    return as_.vpbroadcastq(as_.vector(d, form), Xmm(d));
  }
  const Xmm z = as_.vector(d, form);
  switch (dtype) {
    case DType::kUInt8: as_.movzx(as_.eax, as_.byte[at]); break;
    case DType::kInt8: as_.movsx(as_.eax, as_.byte[at]); break;
    case DType::kInt16: as_.movsx(as_.eax, as_.word[at]); break;
    case DType::kFloat16:
    case DType::kBFloat16: return as_.vpbroadcastw(z, from);
    default:
      return core::size_of(dtype) == 8 ? as_.vpbroadcastq(z, from) : as_.vbroadcastss(z, from);
  }
  as_.vmovd(Xmm(temp), as_.eax);
  as_.vpbroadcastd(z, Xmm(temp));
}

void Memory::update(int d, Form form, int a, bool masked, int temp) {
  if (!masked) return as_.copy(form, d, a);
  const Xmm z = as_.vector(d, form), x = as_.vector(a, form);
  const bool f64 = form == Form::k64;
  if (as_.wide()) return f64 ? as_.vmovapd(z | kTail, x) : as_.vmovaps(z | kTail, x);
  const Xmm mask = as_.vector(temp, form);
  as_.vmovups(mask, as_.ptr[as_.rsp + mask_home(f64 ? 8 : 4)]);
  f64 ? as_.vblendvpd(z, z, x, mask) : as_.vblendvps(z, z, x, mask);
}

void Memory::spill(int s, Form form, int home) {
  const auto to = as_.ptr[as_.rsp + home];
  if (as_.in_mask_register(form)) return as_.kmovq(to, Opmask(s));
  as_.vmovups(to, as_.vector(s, form));
}

void Memory::reload(int d, Form form, int home) {
  const auto from = as_.ptr[as_.rsp + home];
  if (as_.in_mask_register(form)) return as_.kmovq(Opmask(d), from);
  const Xmm z = as_.vector(d, form);
  as_.vmovups(z, from);
}

}  // namespace mithril::cpu::jit
