#include "ir/registry.h"

#include <map>

#include "ir/full_rule.h"

namespace mithril::ir {

struct Registry::Names {
  std::map<std::string, OpId, std::less<>> ids;
  std::vector<OpId> order;  // current definitions
};

Registry& Registry::global() {
  static Registry* registry = [] {
    auto* out = new Registry;  // never destroyed: plug-ins may outlive static destruction
    define_builtin_ops(*out);
    return out;
  }();
  return *registry;
}

core::Result<OpId> Registry::add(OpDef def, bool override_existing) {
  const std::lock_guard lock(mutex_);
  const auto old = std::atomic_load(&names_);
  auto names = old ? std::make_shared<Names>(*old) : std::make_shared<Names>();
  std::vector<std::string> spellings = def.aliases;
  spellings.push_back(def.name);
  for (const std::string& name : spellings) {
    if (!override_existing && names->ids.contains(name)) {
      return core::fail(core::ErrorKind::kName, core::Code::kNameTaken,
                        "op '{}' is defined already; pass override=True to replace it", name);
    }
  }
  const OpId id = size_.load(std::memory_order_relaxed);
  const auto chunk = static_cast<size_t>(id) / kChunk;
  if (chunk >= kChunks) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "too many op definitions ({})", id);
  }
  if (chunks_[chunk].load(std::memory_order_relaxed) == nullptr) {
    chunks_[chunk].store(
        new std::atomic<const OpDef*>[kChunk] {}, std::memory_order_release);
  }
  const auto previous = names->ids.find(def.name);
  if (previous != names->ids.end()) std::erase(names->order, previous->second);
  for (const std::string& name : spellings) names->ids[name] = id;
  names->order.push_back(id);
  auto* published = new OpDef(std::move(def));  // for ever: graphs refer to it by id
  published->id = id;
  published->full_rule = make_full_rule(*published);
  chunks_[chunk].load()[static_cast<size_t>(id) % kChunk].store(published,
                                                                std::memory_order_release);
  size_.store(id + 1, std::memory_order_release);
  std::atomic_store(&names_, std::shared_ptr<const Names>(std::move(names)));
  return id;
}

const OpDef& Registry::get(OpId id) const {
  const auto at = static_cast<size_t>(id);
  return *chunks_[at / kChunk].load(std::memory_order_acquire)[at % kChunk].load(
      std::memory_order_acquire);
}

const OpDef* Registry::find(std::string_view name) const {
  const auto names = std::atomic_load(&names_);
  if (!names) return nullptr;
  const auto at = names->ids.find(name);
  return at == names->ids.end() ? nullptr : &get(at->second);
}

core::Result<const OpDef*> Registry::lookup(std::string_view name) const {
  if (const OpDef* op = find(name)) return op;
  std::vector<std::string> known;
  if (const auto names = std::atomic_load(&names_)) {
    for (const auto& [spelling, id] : names->ids) known.push_back(spelling);
  }
  return core::fail(core::ErrorKind::kKey, core::Code::kOpUnknown, "no op named '{}'{}", name,
                    core::suggestion(name, known));
}

std::vector<const OpDef*> Registry::all() const {
  std::vector<const OpDef*> out;
  if (const auto names = std::atomic_load(&names_)) {
    for (const OpId id : names->order) out.push_back(&get(id));
  }
  return out;
}

}  // namespace mithril::ir
