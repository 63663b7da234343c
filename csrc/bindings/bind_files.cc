// Model files and the header of safetensors files.
#include "bindings/model_arguments.h"
#include "bindings/python.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "model/files/serialize.h"

namespace mithril::bindings {
namespace {

/// The bytes of a str or bytes object, which must stay alive.
std::string_view utf8_view(py::handle text) {
  if (PyBytes_Check(text.ptr())) return py::reinterpret_borrow<py::bytes>(text);
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data != nullptr) return {data, static_cast<size_t>(size)};
  PyErr_Clear();  // lone surrogates
  throw core::ErrorException(core::fail(core::ErrorKind::kParse, core::Code::kParse,
                                        "model file: text must be valid unicode"));
}

/// `find`: name, number of keys -> function over edges, or none.
py::tuple from_json(py::handle text, const py::function& find) {
  const auto relation = [&](std::string_view name, int keys) -> infer::RelationFunction {
    const py::object found = find(py::str(name.data(), name.size()), keys);
    if (found.is_none()) return nullptr;
    return to_relation(py::reinterpret_borrow<py::function>(found), keys);
  };
  model::Loaded loaded = model::from_json(utf8_view(text), user_location(), relation);
  return py::make_tuple(std::move(loaded.model), loaded.notes, loaded.training);
}

/// [(name, dtype, shape, begin, end)], in the order of their places.
py::list read_safetensors(const py::bytes& header, int64_t data_size) {
  py::list out;
  for (const auto& place : core::read_safetensors(header, data_size).or_throw()) {
    out.append(py::make_tuple(place.name, from_dtype(place.dtype), py::tuple(py::cast(place.shape)),
                              place.begin, place.end));
  }
  return out;
}

std::string to_json(const model::Model& model, bool history, const std::string& training) {
  return model::to_json(model, history, training);
}

std::string safetensors_name(const std::string& dtype) {
  return std::string(core::safetensors_name(*core::parse_dtype(dtype)));
}

}  // namespace

void bind_files(py::module_& module) {
  module.def("model_to_json", &to_json, "The text of a model file.");
  module.def("model_from_json", &from_json,
             "A model, notes on what was ignored, text of its training.");
  module.def("read_safetensors", &read_safetensors, "The tensors that a header lists, checked.");
  module.def("safetensors_name", &safetensors_name, "What safetensors calls a dtype.");
}

}  // namespace mithril::bindings
