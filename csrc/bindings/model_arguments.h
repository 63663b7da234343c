// What models take from Python: arguments of a connect, facts about keys, shape templates.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bindings/python.h"
#include "model/model.h"

namespace mithril::bindings {

using model::Connection;
using model::Connections;

/// NOT_GIVEN, a name (exactly `str`), a Connection, a value, or a nest with Connections in it.
model::Argument to_argument(py::handle object, const char* what);
/// {key: argument} in the order given.
Connections to_connections(const py::dict& arguments);
/// A list or tuple of sizes, names, None and (name, ...).
infer::ShapeTemplate to_template(py::handle object);
/// Bits of kinds; or these with what containers hold: (bits, [(is list, any length, (types ...))]).
infer::Type to_type(py::handle object);
/// A name or a Connection.
model::KeyRef to_key(py::handle object);
std::vector<model::KeyRef> to_keys(const py::iterable& objects);
/// MISSING is none.
std::optional<core::HostValue> to_optional_host(py::handle object, const char* what);
/// The function of a constraint over `count` keys.
infer::RelationFunction to_relation(const py::function& function, int count);
/// The tuple (name, value, initial, shape, type, differentiable, (low, high) of the interval); None
/// where nothing is said, MISSING for no value.
model::KeySpec to_spec(py::handle object);

/// clone, remove, replace … of ModelNode.
void bind_editing(py::class_<model::Model>& cls);

template <class T, class Convert>
model::Config<T> to_config(const py::iterable& pairs, Convert convert) {
  model::Config<T> out;
  for (const py::handle item : pairs) {
    const auto pair = py::reinterpret_borrow<py::tuple>(item);
    out.emplace_back(to_key(pair[0]), convert(pair[1]));
  }
  return out;
}

}  // namespace mithril::bindings
