// How values come from memory and go there: element types, masked ends, broadcasts.
#pragma once
#include "backends/cpu/jit/assembler.h"

namespace mithril::cpu::jit {

/// Lays out the stack of a compiled function, by offset from rsp. Homes of values follow.
namespace frame {
inline constexpr int kCaller = 0;  // the caller's stack pointer
inline constexpr int kBegin = 8;   // kAcross: the first point's outer part
inline constexpr int kEnd = 16;    // … and where it ends
inline constexpr int kCount = 24;  // elements of a masked copy
inline constexpr int kSaved = 32;
inline constexpr int kTile = 40;     // elements of the tile
inline constexpr int kMask32 = 64;   // AVX2: its mask in lanes of 32 bits
inline constexpr int kMask64 = 128;  // … of 64
inline constexpr int kBounce = 192;  // 64 bytes
inline constexpr int kHomes = 256;
}  // namespace frame

/// Emits for the shape that the assembler is in. A masked access touches the first elements only,
/// by what set_mask has prepared. Uses rax (where the address does) and r11 in masked accesses.
class Memory {
 public:
  explicit Memory(Assembler& as) : as_(as) {}

  /// From here on masked copies have min(rcx, lanes) > 0 elements.
  void set_mask(int temp);
  void load(int d, Form form, core::DType dtype, const Xbyak::RegExp& at, bool masked, int temp);
  static bool load_needs_temp(const Assembler& as, Form form);
  void store(int s, Form form, core::DType dtype, const Xbyak::RegExp& at, bool masked, int temp);
  /// A whole vector past the caches; `at` is a multiple of its size.
  void stream(int s, Form form, const Xbyak::RegExp& at);
  /// One element into all lanes. Uses rax.
  void broadcast(int d, Form form, core::DType dtype, const Xbyak::RegExp& at, int temp);
  /// a, in masked copies only where the copy has elements.
  void update(int d, Form form, int a, bool masked, int temp);

  void spill(int s, Form form, int home);
  void reload(int d, Form form, int home);

 private:
  void load_whole(int d, Form form, core::DType dtype, const Xbyak::RegExp& at, int temp);
  void load_masked_wide(int d, Form form, core::DType dtype, const Xbyak::RegExp& at, int temp);
  void store_wide(int s, Form form, core::DType dtype, const Xbyak::RegExp& at, bool masked,
                  int temp);
  void store_whole(int s, Form form, core::DType dtype, const Xbyak::RegExp& at, int temp);
  void bounce(bool out, const Xbyak::RegExp& at, int size);
  int mask_home(int size) const { return size == 8 ? frame::kMask64 : frame::kMask32; }

  Assembler& as_;
};

}  // namespace mithril::cpu::jit
