// All ops of the process: append-only, read without a lock.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "ir/op_def.h"

namespace mithril::ir {

/// Ids are never reused; a redefinition makes a new id that the name then means. Readers see a
/// published snapshot; `add` takes a mutex. References to OpDefs stay valid for ever.
class Registry {
 public:
  /// The process's registry; the blocks of ops/ are in it from the first call on.
  static Registry& global();

  core::Result<OpId> add(OpDef def, bool override_existing = false);
  const OpDef& get(OpId id) const;
  /// By name or alias; null when unknown.
  const OpDef* find(std::string_view name) const;
  /// As find; a typed error with a suggestion when unknown.
  core::Result<const OpDef*> lookup(std::string_view name) const;
  std::vector<const OpDef*> all() const;  // current definitions in order of their blocks

 private:
  struct Names;
  std::mutex mutex_;
  // Chunks never move, so a published pointer is read without a lock.
  static constexpr size_t kChunk = 1024, kChunks = 1024;
  std::array<std::atomic<std::atomic<const OpDef*>*>, kChunks> chunks_{};
  std::atomic<OpId> size_{0};
  std::shared_ptr<const Names> names_;  // std::atomic_load / atomic_store
};

/// Defines every block of ops/. Declared here and defined in ops/register.cc, so that ir
/// includes no op; called once, by Registry::global().
void define_builtin_ops(Registry& registry);

}  // namespace mithril::ir
