// Shorthands for composing models in tests.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/registry.h"
#include "model/model.h"

namespace mithril::model::test {

using Strings = std::vector<std::string>;

inline const ir::OpDef& op(std::string_view name) {
  return *ir::Registry::global().lookup(name).or_throw();
}

inline Model leaf(std::string_view name, LeafSpec spec = {}) {
  return Model::leaf(op(name), std::move(spec));
}

inline Model linear(int64_t dimension, std::string name = {}) {
  LeafSpec spec;
  spec.name = std::move(name);
  spec.attrs = {{"dimension", HostValue(dimension)}};
  return leaf("linear", std::move(spec));
}

inline Connections at(std::vector<std::pair<std::string, std::string>> names) {
  Connections out;
  for (auto& [key, name] : names) out.emplace_back(key, Argument::named(name));
  return out;
}

inline Connection key(std::string name) {
  KeySpec spec;
  spec.name = std::move(name);
  return Connection::key(std::move(spec));
}

/// A key with a value given to the constructor.
inline LeafSpec with_value(std::string name, HostValue value) {
  LeafSpec spec;
  KeySpec given;
  given.value = std::move(value);
  spec.keys = {{std::move(name), std::move(given)}};
  return spec;
}

inline ShapeTemplate sizes(std::vector<int64_t> values) {
  ShapeTemplate out;
  for (const int64_t size : values) out.push_back(infer::TemplateItem::of(size));
  return out;
}

inline std::string shape(const Model& model, const KeyRef& key) {
  infer::ShapeNames names;
  return model.print_shape(key, names);
}

inline Strings keys(const std::vector<Connection>& connections) {
  Strings out;
  for (const Connection& c : connections) out.push_back(c.key());
  return out;
}

/// The error's text without its first line's location, or "" when nothing is thrown.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const core::ErrorException& error) {
    return error.error().message;
  }
  return "";
}

template <class F>
core::Code code_of(F&& f) {
  try {
    f();
  } catch (const core::ErrorException& error) {
    return error.error().code;
  }
  return core::Code::kInternal;
}

}  // namespace mithril::model::test
