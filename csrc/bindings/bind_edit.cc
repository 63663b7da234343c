// Editing of models, and look-up by path.
#include "bindings/model_arguments.h"
#include "bindings/python.h"

namespace mithril::bindings {
namespace {

using model::KeyRef;
using model::Model;

std::vector<std::pair<std::string, KeyRef>> to_named_keys(const py::iterable& pairs) {
  std::vector<std::pair<std::string, KeyRef>> out;
  for (const py::handle item : pairs) {
    const auto pair = py::reinterpret_borrow<py::tuple>(item);
    out.emplace_back(pair[0].cast<std::string>(), to_key(pair[1]));
  }
  return out;
}

}  // namespace

void bind_editing(py::class_<Model>& cls) {
  cls.def("clone", &Model::clone)
      .def("unfreeze", [](Model& self) { self.unfreeze(user_location()); })
      .def("remove",
           [](Model& self, const std::vector<Model>& submodels) {
             self.remove(submodels, user_location());
           })
      .def("replace",
           [](Model& self, const Model& submodel, const Model& replacement,
              const std::vector<std::pair<std::string, std::string>>& keys) {
             self.replace(submodel, replacement, keys, user_location());
           })
      .def("extract",
           [](const Model& self, const py::iterable& inputs, const py::iterable& outputs,
              const std::string& name) {
             return self.extract(to_named_keys(inputs), to_named_keys(outputs), name,
                                 user_location());
           })
      .def("clear",
           [](Model& self, const py::iterable& keys, int facets) {
             self.clear(to_keys(keys), static_cast<model::Facets>(facets), user_location());
           })
      .def("change",
           [](Model& self, py::handle key, py::handle spec) {
             self.change(to_key(key), to_spec(spec), user_location());
           })
      .def_property_readonly("is_removed", &Model::is_removed)
      .def("submodel",
           [](const Model& self, const std::string& path) { return self.submodel(path); })
      .def("connection_at",
           [](const Model& self, const std::string& path) { return self.connection_at(path); });
}

}  // namespace mithril::bindings
