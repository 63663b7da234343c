// What selection asks of a native backend: its structured kernels, and steps for loops.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/status.h"
#include "plan/steps.h"
#include "select/fuse.h"
#include "select/kernel_table.h"
#include "tile/program.h"

namespace mithril::select {

/// The domain of a loop and where its operands lie, inputs before outputs, in elements: 0 repeats,
/// negative runs backwards.
struct LoopDomain {
  std::span<const int64_t> kept, reduced;
  std::span<const std::vector<int64_t>> kept_strides, reduced_strides;  // by operand
};

/// A tile program made ready for a backend: independent of shapes and strides.
class LoopKernel {
 public:
  virtual ~LoopKernel() = default;
  /// Tells whether that output may lie on that input, of the same type and strides.
  virtual bool can_alias(uint32_t input, uint32_t output) const = 0;
  /// A step's kernel, params, units, grain and scratch for one domain. `note` gets what people
  /// should know of it; it stays as it is where there is nothing to say.
  virtual plan::Step bind(const LoopDomain& domain, std::string& note) const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// For people: "the cpu backend has no kernel for …".
  virtual std::string_view name() const = 0;
  /// For people: what its code is made for, such as an instruction set.
  virtual std::string_view machine() const { return name(); }
  /// Tells what the machine denied since the last call, and what happens instead; mostly nothing.
  virtual std::string_view take_denial() const { return {}; }
  virtual const KernelTable& kernels() const = 0;
  /// Threads of a run, where nobody says how many.
  virtual int threads() const { return 1; }
  /// Counts the operands, results among them, that a loop may have, and a kernel with its epilogue.
  virtual size_t most_operands() const { return kAnyOperands; }
  /// Tells which programs kernels may run on what they make, where it is not any; a loop() is made
  /// of any.
  using Takes = std::function<bool(const tile::Program&)>;
  virtual Takes takes() const { return {}; }
  /// Fails with the error of tile::verify() only.
  virtual core::Result<std::unique_ptr<const LoopKernel>> loop(
      const tile::Program& program) const = 0;
};

}  // namespace mithril::select
