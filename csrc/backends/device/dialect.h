// A language of devices, as far as plans that are printed in it differ from those in another.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "plan/call.h"

namespace mithril::device {

struct Dialect {
  const char* const* head;     // what the instructions stand on (emit/c_like_text.h)
  std::string_view global;     // before a type of the device's memory: "__global "
  std::string_view byte;       // "uchar"
  std::string_view restricts;  // "restrict"
  std::string_view function;   // before the name of a function: "static void "
  /// Before the name of a kernel of which so many threads do an item together, or one (0):
  /// "__kernel void ".
  std::string (*entry)(int threads);
  std::string_view item;         // the number of an item that is one thread
  std::string_view block;        // the number of an item that threads do together
  bool may_exceed = false;       // whether more items that are one thread run than were asked for
  std::string_view shared = "";  // before a declaration of memory that threads share: "__local "
  bool passes_shared = false;    // whether kernels alone may declare that, and pass it on
};

/// Bytes of parameters that an operand takes: its memory and an offset.
inline constexpr int64_t kOperandBytes = 16;
/// Operands that a step may have besides its own: scratch, and where it reports bad data.
inline constexpr int64_t kOwnOperands = 2;
/// Bytes of parameters that kernels of every device of OpenCL take.
inline constexpr int64_t kLeastParameterBytes = 1024;

/// Describes a device as far as plans are printed for it.
struct PrintOptions {
  const Dialect& dialect;
  bool is_cpu = true;             // few long items with inner loops; else many short ones
  int64_t units = 1;              // compute units
  int64_t most_items = 1 << 20;   // of a kernel
  bool has_doubles = true;        // whether it computes in float64
  bool takes_columns = true;      // whether a unit of a loop may be 64 columns side by side
  int64_t chunk = 512;            // elements between a loop and its reductions
  bool is_vectored = false;       // whether loops are printed for vectors of 16
  int threads_of_rows = 0;        // that do a long row together; 0: a row is one thread's
  int64_t shared_bytes = 0;       // of memory that threads of a row share
  int64_t most_groups = 1 << 30;  // of threads that do an item together
  plan::RegisterTile tile = {};   // of products
  int64_t parameter_bytes = kLeastParameterBytes;  // that a kernel takes
  /// Those that kernels do, though a library might: it has no algorithm for them.
  std::set<const plan::LibraryProduct*> refused = {};

  /// Begins every text: the dialect's head, without float64 where the device has none, and the
  /// instructions of tile programs.
  std::string prelude() const;
  /// Lets no more than `most` threads do an item together, or none.
  void limit_threads(int most);
};

}  // namespace mithril::device
