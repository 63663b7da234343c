// Values, types and shapes as they stand in model files. Internal to model/.
#pragma once
#include "core/json.h"
#include "infer/kind.h"
#include "infer/solver.h"

namespace mithril::model {

using core::HostValue;

/// Numbers, strings, bools, null and lists as JSON has them; all else is an object of one key:
/// {"tuple": […]}, {"slice": [start, stop, step]}, {"dtype": "f32"}, {"float": "nan"},
/// {"ellipsis": true}, {"tensor": {"dtype", "shape", "data" or "bytes"}}.
/// kUnsupported, with `what` in the message, for values that only a process has.
void write_value(core::JsonWriter& out, const HostValue& value, std::string_view what);
void write_kinds(core::JsonWriter& out, infer::KindSet kinds);
void write_shape(core::JsonWriter& out, const infer::ShapeTemplate& shape);

/// Values of a file: counts them, so that a small file cannot make many large objects.
class ValueReader {
 public:
  explicit ValueReader(core::JsonReader& in) : in_(in) {}
  HostValue read() { return read(0); }
  infer::KindSet read_kinds();
  infer::ShapeTemplate read_shape();

 private:
  static constexpr size_t kMost = 1u << 20;
  HostValue read(int depth);
  HostValue read_tagged(int depth);
  HostValue::Tuple read_items(int depth);
  HostValue read_slice(int depth);
  HostValue read_tensor();
  void read_elements(core::TensorData& data);
  void read_element(core::TensorData& data);

  core::JsonReader& in_;
  size_t count_ = 0;
};

}  // namespace mithril::model
