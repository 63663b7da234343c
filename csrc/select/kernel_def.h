// What a backend declares of each structured kernel, and what the kernel is told of a node.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/packed_matrix.h"
#include "core/status.h"
#include "ir/graph.h"
#include "ir/op_def.h"
#include "plan/steps.h"
#include "tile/program.h"

namespace mithril::select {

/// Tells whether results equal reference/ bit for bit.
enum class OrderClass : uint8_t { kCanonical, kOther };

/// An operand in memory: strides in elements of `dtype`; use.buffer -1 = absent.
struct Operand {
  plan::OperandRef use;
  core::DType dtype = core::DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  /// Its first element, if the operand is a constant of the program; lives as long as the step.
  const std::byte* constant = nullptr;
  /// Instead, if the constant is kept in fewer bits; nothing may be read through `use` then.
  std::shared_ptr<const core::PackedMatrix> packed;
  bool present() const { return use.buffer >= 0; }
};

/// A pointwise program that a kernel runs on each block of its result when that is finished.
struct Epilogue {
  const tile::Program& program;
  std::span<const Operand> operands;  // inputs, then outputs; strides along the result's axes
  size_t result;                      // which input is the kernel's result
};

/// One node for which a kernel is wanted. Outputs are contiguous.
struct KernelRequest {
  const ir::Node& node;
  const ir::OpDef& op;
  std::span<const Operand> inputs;
  std::span<const Operand> outputs;
  bool canonical = false;              // only canonical kernels: KernelTable refuses all others
  const Epilogue* epilogue = nullptr;  // only for kernels that take one
  int threads = 1;                     // that a run has, at most
  bool has_packed() const {
    const auto is_packed = [](const Operand& operand) { return operand.packed != nullptr; };
    return std::any_of(inputs.begin(), inputs.end(), is_packed);
  }
};

/// States what a row of the table requires, and how people are told of it.
struct Condition {
  using Holds = bool (*)(const KernelRequest&);
  constexpr Condition(Holds predicate = nullptr, const char* requirement = "")  // NOLINT: rows
      : holds(predicate), text(requirement) {}
  constexpr Condition(std::nullptr_t) {}  // NOLINT: rows
  bool operator()(const KernelRequest& request) const { return holds == nullptr || holds(request); }
  Holds holds = nullptr;  // null: always
  const char* text = "";  // "elements of float32 or float64"
};

/// Says where a kernel runs an epilogue.
enum class EpilogueSupport : uint8_t {
  kNothing,  // nowhere: it takes none
  kBlocks,   // on blocks of its result
  kRows,     // on whole rows of a matrix, one after another, which it keeps nowhere else
};

struct KernelDef {
  std::string_view op;  // which op it computes
  const char* name;     // for people: plans, profiles
  OrderClass order = OrderClass::kCanonical;
  bool contiguous = true;  // inputs that are strided views are copied first
  Condition matches;
  /// Kernel, params, units, grain, scratch; operands are filled by select (inputs present, then
  /// outputs, if any, then those of the epilogue but for the result, then the workspace).
  core::Result<plan::Step> (*make)(const KernelRequest&) = nullptr;
  EpilogueSupport epilogue_support = EpilogueSupport::kNothing;
  bool packed = false;  // for requests with packed operands, and for no others
};

}  // namespace mithril::select
