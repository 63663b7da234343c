// What a step computes, in terms that a printer of plans understands. Targets that run plans step
// by step bind steps to functions of their own instead (plan/kernel.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "plan/kernel.h"
#include "tile/program.h"

namespace mithril::plan {

/// A tile program over a domain. Operands: its inputs, then its outputs; strides in elements.
struct LoopCall {
  tile::Program program;
  std::vector<int64_t> kept, reduced;                               // sizes of the domain
  std::vector<std::vector<int64_t>> kept_strides, reduced_strides;  // by operand
  bool operator==(const LoopCall&) const = default;
};

/// A tile program without rows that a kernel runs on elements of its result as it finishes them.
struct Finish {
  LoopCall loop;
  std::vector<size_t> operands;  // of the step: where each operand of the loop is
};

/// C = A B, many times, as a library of the device does it. Strides in elements; rows or columns of
/// A and B lie side by side, rows of C do.
struct LibraryMatmul {
  core::DType dtype = core::DType::kFloat32;   // of A and B
  core::DType result = core::DType::kFloat32;  // of C: the same, or float32 of halves
  int64_t batches = 1, m = 0, n = 0, k = 0;
  int64_t a_batch = 0, a_row = 0, a_col = 0;
  int64_t b_batch = 0, b_row = 0, b_col = 0;
  int64_t c_batch = 0, c_row = 0;
  size_t c = 2, bias = 3, addend = 3;  // which operands of the step; A and B are the first ones
  bool adds_bias = false;              // a row to each row of C, before that is rounded
  bool adds_matrix = false;            // the addend, which lies as C does, to C
  bool finishes = false;               // and these are all of `finish`
  bool allows_tf32 = false;            // factors may be rounded to 10 bits behind the point
};

/// A convolution of dense images [n, c, h, w], or one of its gradients, as a library of the device
/// does it. As many rows and columns of zeros are on either side of an image.
struct LibraryConv2d {
  /// Says which of the three operands is made of the other two: those of the ops conv2d, conv2d_dx
  /// and conv2d_dw.
  enum class Makes : uint8_t { kOutput, kInput, kWeights };
  Makes makes = Makes::kOutput;
  core::DType dtype = core::DType::kFloat32;  // of all three
  int64_t batch = 0, groups = 1;
  int64_t c_in = 0, h_in = 0, w_in = 0;     // channels of a group
  int64_t c_out = 0, h_out = 0, w_out = 0;  // channels of a group
  int64_t kh = 0, kw = 0;
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  bool allows_tf32 = false;
};

/// Says what a library may do in place of a function: of the first two operands of a step, and the
/// third as result unless it says otherwise.
using LibraryProduct = std::variant<LibraryMatmul, LibraryConv2d>;

/// Tells whether the library does all of `finish`, too.
inline bool finishes(const LibraryProduct& product) {
  const auto* const matmul = std::get_if<LibraryMatmul>(&product);
  return matmul != nullptr && matmul->finishes;
}
inline core::DType dtype_of(const LibraryProduct& product) {
  return std::visit([](const auto& one) { return one.dtype; }, product);
}

/// The part of a product that an item of a device keeps in registers; of items that do a larger
/// tile together, through memory that they share, a vector is one element.
struct RegisterTile {
  int64_t rows = 8, vectors = 2;
  int64_t vector_bytes = 64;
  int threads = 0;  // that do a tile together, a square number; 0: one item does its own
};

/// An array in memory that threads share which do a unit together: "m_f32 tile[16][65]".
struct SharedArray {
  std::string type, name;
  int64_t count = 0;     // of elements, or of rows
  std::string row = {};  // "[65]": of an array of arrays
};

/// A call of a function of C that the target's texts define.
struct FunctionCall {
  /// Says what the function may find wrong with its data; it returns where, or -1.
  enum class Check : uint8_t { kNone, kIndex, kSingular, kNotPositiveDefinite };

  std::string name;                // for people, and the name of the step's own function
  std::vector<std::string> texts;  // that define what is called, each behind those it stands on
  /// Declarations that the arguments name: "static const ref_conv2d_dims d = {1, …};".
  std::string declarations;
  /// "ref_conv2d_f32(&d, a0, a1, a2, begin, end)": operands are a0, a1 … in the step's order,
  /// `scratch` is the step's own memory, [begin, end) some of its units.
  std::string call;
  Check check = Check::kNone;
  int32_t index = 0;  // of kIndex: which operand holds the indices
  int64_t bound = 0;  // of kIndex: what they must be below
  int threads = 0;    // of a device that do a unit together; 0: one function does units alone

  /// The same for devices that run few long items, such as CPUs, where that is another text.
  struct Long {
    std::string call;
    int64_t units = 0;
    size_t scratch_bytes = 0;  // of an item
  };
  std::optional<Long> in_long_items;

  /// A kernel of several that a step is on a device; each begins when those before it have ended.
  struct Phase {
    std::string call;
    int64_t units = 0;
    int threads = 0;                       // that do a unit together; 0: one does
    std::vector<SharedArray> shared = {};  // by those threads
    /// Parts of the step's workspace, from `scratch_at` bytes on, that are each `scratch` of one
    /// item: there are no more items than parts. 0: no item has scratch.
    int64_t scratch_parts = 0, scratch_bytes = 0, scratch_at = 0;
    std::vector<size_t> operands = {};  // of the step, that it takes, ascending; empty: all
  };
  /// Prints the only phase of the step, instead of `call`, where that depends on a device's
  /// register tile.
  std::function<Phase(const RegisterTile&)> in_tile;
  /// Prints the phases of the step, instead of `call`; `finish` is in the last one.
  std::function<std::vector<Phase>(const RegisterTile&)> in_phases;
  /// The same as a library of the device may do it; what comes behind it then is `finish`, if it
  /// does not do that, too.
  std::shared_ptr<const LibraryProduct> product;
  /// Behind "M_FINISH(from, count);" in the call, for devices: `count` elements of the result from
  /// `from` on are there.
  std::shared_ptr<const Finish> finish;
};

using Call = std::variant<LoopCall, FunctionCall>;

}  // namespace mithril::plan
