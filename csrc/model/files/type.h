// Types and intervals as they stand in model files. Internal to model/.
#pragma once
#include "infer/type.h"
#include "model/files/value.h"

namespace mithril::model {

/// `kinds` as "type", and what its containers hold as "containers": each is an object of one key,
/// {"tuple": [T, …]} and {"list": [T, …]} item by item, {"tuple_of": T} and {"list_of": T} for any
/// number of them. T is an array of kinds and containers.
/// kUnsupported, with `what` in the message, beyond the limits of files.
void write_type(core::JsonWriter& out, const infer::Type& type, std::string_view what);
/// "type" with all that can be in an interval, and "interval": [low, high], null where it is open.
/// Readers of version 1.0 take the type.
void write_interval(core::JsonWriter& out, const infer::Interval& interval);

/// Names the kinds that a wire with an interval may have.
inline constexpr infer::KindSet kMeasured =
    infer::kTensor | infer::kScalarInt | infer::kScalarFloat;

/// The value of "containers".
std::vector<infer::Container> read_containers(core::JsonReader& in);
infer::Interval read_interval(core::JsonReader& in);
/// Tells whether each container is of a kind in the type.
bool fits(const infer::Type& type);

}  // namespace mithril::model
