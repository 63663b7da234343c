// What a custom relation of an op block may see and say (RuleBuilder::custom).
#pragma once
#include <cstdint>
#include <optional>

#include "core/host_value.h"
#include "core/status.h"
#include "infer/kind.h"

namespace mithril::infer {

class Store;
struct Propagator;

/// Terms are numbered as given to custom(). Setters narrow; a conflict is a failed Status that
/// the relation passes on. A relation runs again whenever one of its terms changed.
class Relation {
 public:
  Relation(Store& store, const Propagator& propagator) : s_(store), p_(propagator) {}

  int count() const;
  int64_t data() const;
  KindSet kinds(int term) const;
  core::Status narrow(int term, KindSet kinds);
  std::optional<int> rank(int term) const;
  core::Status set_rank(int term, int rank);
  /// Size of an axis (>= 0) of a tensor of known rank, if known.
  std::optional<int64_t> size(int term, int axis) const;
  core::Status set_size(int term, int axis, int64_t size);
  /// Equal sizes of two axes of tensors of known ranks.
  core::Status tie(int term_a, int axis_a, int term_b, int axis_b);
  /// The complete host value without unknown sizes.
  std::optional<core::HostValue> value(int term) const;
  core::Status set_value(int term, const core::HostValue& value);
  /// The first term is the tuple of the others, tuples and lists among them taken apart; waits
  /// until it is known what each one is.
  core::Status join();
  /// It has said everything and need not run again.
  void finish() { finished_ = true; }
  bool finished() const { return finished_; }

 private:
  uint32_t cell(int term) const;
  core::Status outcome(bool ok, int term) const;
  Store& s_;
  const Propagator& p_;
  bool finished_ = false;
};

}  // namespace mithril::infer
