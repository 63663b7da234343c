#include "backends/cpu/gemm/gemm_emitter.h"

#if defined(__x86_64__)
#include <algorithm>
#include <bit>
#include <cstddef>
#include <new>

#include <xbyak/xbyak.h>
#endif

namespace mithril::cpu::jit {

#if defined(__x86_64__)

namespace {

constexpr size_t kMostBytes = 16 << 10;  // of one kernel
constexpr size_t kLine = 64;             // of a cache; code is aligned to it
constexpr int kLateSteps = 4;            // of k, that groups of rows take one after the other
constexpr int kSumsInFlight = 8;         // hide the latency of a multiply-add

// Order inside a tile is free: each sum is one chain of fused multiply-adds over rising k.
class Emitter : public Xbyak::CodeGenerator {
 public:
  Emitter(uint8_t* memory, size_t bytes) : CodeGenerator(bytes, memory) {}

  /// Appends a kernel; where it begins.
  size_t emit(const GemmTileSpec& spec) {
    align(kLine);
    const size_t begin = getSize();
    s_ = spec;
    wide_ = spec.isa == Isa::kAvx512;
    vector_ = wide_ ? 64 : 32;
    element_ = spec.is_double ? 8 : 4;
    sums_ = spec.rows * spec.vectors;
    save_registers();
    load_mask();
    fetch_c();
    load_arguments();
    clear_sums();
    emit_loop();
    return begin;
  }

  /// Once, after the last kernel: what they share, and the size of it all.
  size_t finish() {
    align(kLine);
    L(mask_table_);  // a vector that is read n lanes before the zeros has n lanes set
    for (int i = 0; i < 8; ++i) dd(~0u);
    for (int i = 0; i < 8; ++i) dd(0);
    ready();
    return getSize();
  }

 private:
  using Address = Xbyak::Address;
  using Reg64 = Xbyak::Reg64;
  using Vector = Xbyak::Xmm;

  // ---- registers

  const Reg64 tile_{rdi}, b_{rdx}, b_step_{rax}, count_{r9}, next_{r10}, next_step_{r11},
      packed_{r8};
  // A by columns: one pointer and its step. By rows: a pointer for each seven rows, which are
  // reached by adding 0 to 6 steps.
  const Reg64 a_[4] = {rsi, rbx, rbp, r12};
  const Reg64 step_{rcx}, step3_{r13}, step5_{r14};
  const Reg64 before_{r15};  // the sum of the blocks before
  static constexpr int kRowsOfPointer = 7;

  int pointers() const { return s_.by_rows ? (s_.rows + kRowsOfPointer - 1) / kRowsOfPointer : 1; }
  std::vector<Reg64> saved() const {
    std::vector<Reg64> out(a_ + 1, a_ + pointers());
    out.push_back(before_);
    if (s_.by_rows) out.insert(out.end(), {step3_, step5_});
    return out;
  }
  void save_registers() {
    for (const Reg64& reg : saved()) push(reg);
  }
  void leave() {
    const std::vector<Reg64> pushed = saved();
    for (size_t i = pushed.size(); i > 0; --i) pop(pushed[i - 1]);
    vzeroupper();
    ret();
  }

  Vector vector(int index) const {
    if (wide_) return Xbyak::Zmm(index);
    return Xbyak::Ymm(index);
  }
  Vector sum(int row, int column) const { return vector(row * s_.vectors + column); }
  Vector right(int column) const { return vector(sums_ + column); }
  Vector mask() const { return vector(15); }  // AVX2; AVX-512 has k1
  // Elements of A take turns in the registers that are left.
  Vector left(int row) const {
    const int from = sums_ + s_.vectors;
    const int spare = (wide_ ? 32 : s_.masked ? 15 : 16) - from;
    return vector(from + row % spare);
  }
  bool masked(int column) const { return s_.masked && column == s_.vectors - 1; }
  // One vector of B: each element of A is used once, as a memory operand of the multiply-add.
  bool broadcasts_in_place() const { return wide_ && s_.vectors == 1; }

  Address argument(size_t offset) { return qword[tile_ + offset]; }

  // ---- before the loop

  void load_mask() {
    if (!s_.masked) return;
    if (wide_) {
      mov(eax, -1);
      mov(ecx, dword[tile_ + offsetof(GemmTile, last_columns)]);
      bzhi(eax, eax, ecx);
      kmovw(k1, eax);
      return;
    }
    mov(eax, vector_ / element_);
    sub(rax, argument(offsetof(GemmTile, last_columns)));
    lea(rcx, ptr[rip + mask_table_]);
    vmovups(Xbyak::Ymm(15), ptr[rcx + rax * element_]);
  }

  // C is wanted after the loop: its misses hide behind it.
  void fetch_c() {
    mov(r9, argument(offsetof(GemmTile, c)));
    mov(r10, argument(offsetof(GemmTile, c_step)));
    for (int row = 0; row < s_.rows; ++row) {
      for (int at = 0; at < s_.vectors * vector_; at += static_cast<int>(kLine)) {
        prefetchw(ptr[r9 + at]);
      }
      if (row + 1 < s_.rows) add(r9, r10);
    }
  }

  void load_arguments() {
    mov(a_[0], argument(offsetof(GemmTile, a)));
    mov(step_, argument(offsetof(GemmTile, a_step)));
    mov(b_, argument(offsetof(GemmTile, b)));
    mov(b_step_, argument(offsetof(GemmTile, b_step)));
    mov(next_, argument(offsetof(GemmTile, next)));
    mov(next_step_, argument(offsetof(GemmTile, next_step)));
    if (s_.packs) mov(packed_, argument(offsetof(GemmTile, packed)));
    if (!s_.by_rows) return;
    lea(step3_, ptr[step_ + step_ * 2]);
    lea(step5_, ptr[step_ + step_ * 4]);
    for (int i = 1; i < pointers(); ++i) {  // seven rows on
      lea(a_[i], ptr[a_[i - 1] + step5_]);
      lea(a_[i], ptr[a_[i] + step_ * 2]);
    }
  }

  void clear_sums() {
    for (int i = 0; i < sums_; ++i) {
      if (wide_) {
        vpxord(vector(i), vector(i), vector(i));
      } else {
        vxorps(vector(i), vector(i), vector(i));
      }
    }
  }

  // ---- the loop over k

  // What is left over first, then whole turns, of which the last one stops half-way.
  void emit_loop() {
    const int unroll = gemm_unroll(s_.rows, s_.vectors);
    const int together = unroll - kLateSteps;  // of a turn, which all rows take together
    Xbyak::Label single, turns, turn, last, none;
    mov(count_, argument(offsetof(GemmTile, depth)));
    and_(count_, unroll - 1);
    jz(turns, T_NEAR);
    L(single);
    emit_step(0, 0, s_.rows);
    advance(1);
    dec(count_);
    jnz(single, T_NEAR);
    L(turns);
    mov(count_, argument(offsetof(GemmTile, depth)));
    shr(count_, std::countr_zero(static_cast<unsigned>(unroll)));
    jz(none, T_NEAR);
    align(kLine);
    L(turn);
    for (int u = 0; u < together; ++u) emit_step(u, 0, s_.rows);
    for (int row = 0; row < s_.prefetches; ++row) {
      for (int at = 0; at < s_.vectors * vector_; at += static_cast<int>(kLine)) {
        prefetcht1(ptr[next_ + at]);
      }
      add(next_, next_step_);
    }
    dec(count_);
    jz(last, T_NEAR);
    for (int u = together; u < unroll; ++u) emit_step(u, 0, s_.rows);
    advance(unroll);
    jmp(turn, T_NEAR);
    L(last);
    emit_end(together, unroll);
    L(none);
    emit_end(0, 0);
  }

  void advance(int steps) {
    if (s_.by_rows) {
      for (int i = 0; i < pointers(); ++i) add(a_[i], steps * element_);
    }
    if (s_.packs) add(packed_, steps * s_.vectors * vector_);
  }

  // Step `u` of a turn, for some rows; the first ones pack.
  void emit_step(int u, int begin, int end) {
    for (int j = 0; j < s_.vectors; ++j) {
      load(right(j), ptr[b_ + j * vector_], masked(j));
      if (s_.packs && begin == 0) vmovups(ptr[packed_ + (u * s_.vectors + j) * vector_], right(j));
    }
    add(b_, b_step_);
    for (int i = begin; i < end; ++i) {
      if (broadcasts_in_place()) {
        multiply_add(sum(i, 0), right(0), ptr_b[left_at(i, u)]);
        continue;
      }
      broadcast(left(i), ptr[left_at(i, u)]);
      for (int j = 0; j < s_.vectors; ++j) multiply_add(sum(i, j), right(j), left(i));
    }
    if (!s_.by_rows) add(a_[0], step_);
  }

  // Where the element of A in this row stands, `u` steps of k into the turn.
  Xbyak::RegExp left_at(int row, int u) const {
    if (!s_.by_rows) return a_[0] + row * element_;
    const Xbyak::RegExp at = a_[row / kRowsOfPointer] + u * element_;
    switch (row % kRowsOfPointer) {
      case 0: return at;
      case 1: return at + step_;
      case 2: return at + step_ * 2;
      case 3: return at + step3_;
      case 4: return at + step_ * 4;
      case 5: return at + step5_;
      default: return at + step3_ * 2;
    }
  }

  // ---- the end

  // The last steps of k, for one group of rows after the other, each of which is stored meanwhile:
  // CPUs let few stores wait for their sums (Zen 4: 16 of 64 bytes), and what comes next with them.
  void emit_end(int u_begin, int u_end) {
    const Reg64 c = count_, b_begin = next_, a_begin = next_step_;  // no longer needed
    mov(c, argument(offsetof(GemmTile, c)));
    mov(before_, argument(offsetof(GemmTile, sum)));
    mov(b_begin, b_);
    if (!s_.by_rows) mov(a_begin, a_[0]);
    const int groups = std::max(1, sums_ / kSumsInFlight);
    for (int group = 0, begin = 0; group < groups; ++group) {
      const int left = groups - group, end = begin + (s_.rows - begin + left - 1) / left;
      if (group > 0) mov(b_, b_begin);
      if (group > 0 && !s_.by_rows) mov(a_[0], a_begin);
      for (int u = u_begin; u < u_end; ++u) emit_step(u, begin, end);
      emit_stores(c, begin, end);
      begin = end;
    }
    leave();
  }

  void emit_stores(const Reg64& c, int begin, int end) {
    Xbyak::Label adds, done;
    test(before_, before_);
    jnz(adds, T_NEAR);
    emit_store_rows(c, begin, end, false);
    jmp(done, T_NEAR);
    L(adds);
    emit_store_rows(c, begin, end, true);
    L(done);
  }

  void emit_store_rows(const Reg64& c, int begin, int end, bool adds) {
    for (int i = begin; i < end; ++i) {
      for (int j = 0; j < s_.vectors; ++j) {
        const Address old = ptr[before_ + j * vector_];
        if (adds && masked(j)) {
          load(right(0), old, true);  // B is loaded again
          add_vectors(sum(i, j), right(0));
        } else if (adds) {
          add_vectors(sum(i, j), old);
        }
        store(ptr[c + j * vector_], sum(i, j), masked(j));
      }
      if (i + 1 == s_.rows) continue;
      add(c, argument(offsetof(GemmTile, c_step)));
      if (adds) add(before_, argument(offsetof(GemmTile, sum_step)));
    }
  }

  // ---- instructions of either type and set

  void load(const Vector& to, const Address& from, bool partly) {
    if (!partly) {
      vmovups(to, from);
    } else if (wide_) {
      s_.is_double ? vmovupd(to | k1 | T_z, from) : vmovups(to | k1 | T_z, from);
    } else {
      s_.is_double ? vmaskmovpd(to, mask(), from) : vmaskmovps(to, mask(), from);
    }
  }
  void store(const Address& to, const Vector& from, bool partly) {
    if (!partly) {
      vmovups(to, from);
    } else if (wide_) {
      s_.is_double ? vmovupd(to | k1, from) : vmovups(to | k1, from);
    } else {
      s_.is_double ? vmaskmovpd(to, mask(), from) : vmaskmovps(to, mask(), from);
    }
  }
  void broadcast(const Vector& to, const Address& from) {
    if (!s_.is_double) {
      vbroadcastss(to, from);
    } else if (wide_) {
      vbroadcastsd(Xbyak::Zmm(to.getIdx()), from);
    } else {
      vbroadcastsd(Xbyak::Ymm(to.getIdx()), from);
    }
  }
  void multiply_add(const Vector& to, const Vector& x, const Xbyak::Operand& y) {
    s_.is_double ? vfmadd231pd(to, x, y) : vfmadd231ps(to, x, y);
  }
  void add_vectors(const Vector& to, const Xbyak::Operand& x) {
    s_.is_double ? vaddpd(to, to, x) : vaddps(to, to, x);
  }

  GemmTileSpec s_;
  bool wide_ = false;
  int vector_ = 0, element_ = 0;  // bytes
  int sums_ = 0;                  // registers of the tile
  Xbyak::Label mask_table_;
};

struct FreeAligned {
  void operator()(uint8_t* at) const { operator delete (at, std::align_val_t{kLine}); }
};

}  // namespace

std::vector<GemmCode> emit_gemm_tiles(std::span<const GemmTileSpec> specs) {
  const size_t bytes = (specs.size() + 1) * kMostBytes;
  const std::unique_ptr<uint8_t, FreeAligned> draft(
      static_cast<uint8_t*>(operator new (bytes, std::align_val_t{kLine})));
  Emitter emitter(draft.get(), bytes);
  std::vector<size_t> begins;
  begins.reserve(specs.size());
  for (const GemmTileSpec& spec : specs) begins.push_back(emitter.emit(spec));
  const auto memory = CodeMemory::seal({draft.get(), emitter.finish()});
  if (memory == nullptr) return {};
  std::vector<GemmCode> out;
  out.reserve(specs.size());
  for (const size_t begin : begins) out.push_back({memory->function<GemmTileFn>(begin), memory});
  return out;
}

#else

std::vector<GemmCode> emit_gemm_tiles(std::span<const GemmTileSpec>) { return {}; }

#endif

}  // namespace mithril::cpu::jit
