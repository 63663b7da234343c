// The structured kernels of a backend, as a table.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/target.h"
#include "select/kernel_def.h"

namespace mithril::select {

/// The rows of one family of kernels, in order of preference within an op.
using KernelFamily = std::span<const KernelDef> (*)();

class KernelTable {
 public:
  /// `families` and `rest`, whose rows stand behind theirs, outlive the table. `machine`: what a
  /// request must be for any row of the families.
  constexpr explicit KernelTable(std::span<const KernelFamily> families,
                                 const KernelTable* rest = nullptr, const Condition& machine = {})
      : families_(families), rest_(rest), machine_(machine) {}

  /// The first row for `request` that is_allowed(), of a machine that can, and matches; null when
  /// there is none.
  const KernelDef* find(const KernelRequest& request) const;
  /// Names what the machine of a row lacks for the request: "float64"; null: nothing.
  const char* lacks(const KernelDef& kernel, const KernelRequest& request) const;
  /// Every row for an op, in order of preference.
  std::vector<const KernelDef*> rows_of(std::string_view op) const;
  /// Tells whether any row is for this op, as the support table and ir::Target::keeps_whole ask.
  bool has(std::string_view op) const;

 private:
  std::span<const KernelFamily> families_;
  const KernelTable* rest_;
  Condition machine_;
};

/// Tells whether a kernel is canonical where the request wants that. Packed weights have no others:
/// their products have an order of their own (docs/numerics.md), the same on every machine.
bool is_allowed(const KernelDef& kernel, const KernelRequest& request);

/// Lists the composites with a row of their own.
ir::OpNames composites_of(const KernelTable& kernels);

/// Describes a backend that runs plans; `composites`, which its kernels compute, stay whole.
ir::Target native_target(std::string name, core::DType default_float, ir::OpNames composites);

}  // namespace mithril::select
