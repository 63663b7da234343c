// Handles into a solver's arrays. Plain indices; UINT32_MAX is "none".
#pragma once
#include <cstdint>

namespace mithril::infer {

template <class Tag>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t index = kNone;
  constexpr bool valid() const { return index != kNone; }
  constexpr bool operator==(const Id&) const = default;
};

using CellId = Id<struct CellTag>;    // one wire or attribute: kinds, shape, value
using FactId = Id<struct FactTag>;    // something the user said: text and location
using RuleId = Id<struct RuleTag>;    // one use of an op's rule
using ScopeId = Id<struct ScopeTag>;  // names of dimensions that mean the same
using DimId = Id<struct DimTag>;      // one dimension variable = one integer unknown

}  // namespace mithril::infer
