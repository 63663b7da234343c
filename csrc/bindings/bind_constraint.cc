// Constraints that users write: what their function sees of a key, and how it is called.
#include "bindings/gil.h"
#include "bindings/model_arguments.h"
#include "bindings/python.h"
#include "core/status.h"
#include "infer/relation.h"

namespace mithril::bindings {
namespace {

using core::Code;
using core::ErrorKind;
using infer::Relation;

constexpr int kMostAxes = 12;  // of shapes that inference follows

/// One key of a constraint while its function runs.
class Edge {
 public:
  Edge(std::shared_ptr<Relation*> relation, int term)
      : relation_(std::move(relation)), term_(term) {}

  uint32_t kinds() const { return relation().kinds(term_).bits(); }
  std::string type() const { return infer::to_string(relation().kinds(term_)); }
  py::object shape() const;
  py::tuple value() const;
  void set_kinds(uint32_t bits) { done(relation().narrow(term_, infer::KindSet(bits))); }
  void set_shape(py::handle shape);
  void set_value(py::handle value) { done(relation().set_value(term_, to_host(value, "value"))); }
  void tie(int axis, const Edge& other, int other_axis);

 private:
  Relation& relation() const {
    if (*relation_ != nullptr) return **relation_;
    throw core::ErrorException(
        core::fail(ErrorKind::kValue, Code::kValueArgument,
                   "constraint: its keys can be asked about only while its function runs"));
  }
  static void done(core::Status status) {
    if (!status.ok()) throw core::ErrorException(status.take());
  }
  int axis_of(int axis) const;

  std::shared_ptr<Relation*> relation_;
  int term_;
};

/// Sizes, none where one is not known; none while the rank is not known.
py::object Edge::shape() const {
  const auto rank = relation().rank(term_);
  if (!rank) return py::none();
  py::list out;
  for (int axis = 0; axis < *rank; ++axis) {
    const auto size = relation().size(term_, axis);
    out.append(size ? py::object(py::int_(*size)) : py::object(py::none()));
  }
  return out;
}

py::tuple Edge::value() const {
  const auto value = relation().value(term_);
  return value ? py::make_tuple(from_host(*value)) : py::tuple();
}

void Edge::set_shape(py::handle shape) {
  const infer::ShapeTemplate items = to_template(shape);
  if (items.size() > kMostAxes) {
    throw core::ErrorException(core::fail(ErrorKind::kShape, Code::kShapeTemplate,
                                          "set_shape: requires at most {} axes, got {}", kMostAxes,
                                          items.size()));
  }
  for (const infer::TemplateItem& item : items) {
    const bool plain = item.type == infer::TemplateItem::Type::kSize ||
                       item.type == infer::TemplateItem::Type::kUnknown;
    if (plain) continue;
    throw core::ErrorException(core::fail(
        ErrorKind::kShape, Code::kShapeTemplate,
        "set_shape: in a constraint, items are sizes and none; use tie for equal sizes"));
  }
  done(relation().narrow(term_, infer::kTensor));
  done(relation().set_rank(term_, static_cast<int>(items.size())));
  for (size_t axis = 0; axis < items.size(); ++axis) {
    if (items[axis].type == infer::TemplateItem::Type::kUnknown) continue;
    done(relation().set_size(term_, static_cast<int>(axis), items[axis].size));
  }
}

int Edge::axis_of(int axis) const {
  const auto rank = relation().rank(term_);
  if (rank && axis >= -*rank && axis < *rank) return axis < 0 ? axis + *rank : axis;
  throw core::ErrorException(core::fail(ErrorKind::kValue, Code::kValueAxis,
                                        "constraint: no axis {} in a tensor of {} axes", axis,
                                        rank ? std::to_string(*rank) : "unknown"));
}

void Edge::tie(int axis, const Edge& other, int other_axis) {
  done(relation().tie(term_, axis_of(axis), other.term_, other.axis_of(other_axis)));
}

/// Calls the function on its keys; a true result, or a pair that begins with one, says that it has
/// nothing more to say.
core::Status call(const py::function& function, Relation& relation, int count) {
  const GilAcquire gil;
  auto alive = std::make_shared<Relation*>(&relation);
  struct End {
    std::shared_ptr<Relation*> alive;
    ~End() { *alive = nullptr; }
  } const end{alive};
  py::tuple edges(count);
  for (int i = 0; i < count; ++i) edges[i] = py::cast(Edge(alive, i));
  const py::object result = function(*edges);
  const bool pair = PyTuple_Check(result.ptr()) && py::len(result) > 0;
  const py::object said = pair ? py::object(py::tuple(result)[0]) : result;
  if (!said.is_none() && !PyBool_Check(said.ptr())) {
    throw core::ErrorException(
        core::fail(ErrorKind::kDType, Code::kValueArgument,
                   "constraint: its function returns True when it is finished, False or none else, "
                   "got {}",
                   Py_TYPE(said.ptr())->tp_name));
  }
  if (said.ptr() == Py_True) relation.finish();
  return {};
}

}  // namespace

infer::RelationFunction to_relation(const py::function& function, int count) {
  // The engine may drop it on any thread.
  std::shared_ptr<py::function> kept(new py::function(function), [](py::function* pointer) {
    const GilAcquire gil;
    delete pointer;
  });
  return [kept, count](Relation& relation) { return call(*kept, relation, count); };
}

void bind_constraint(py::module_& module) {
  py::class_<Edge>(module, "Edge", "A key of a constraint, while the constraint's function runs.")
      .def_property_readonly("kinds", &Edge::kinds)
      .def_property_readonly("type", &Edge::type, "What it may carry, in words.")
      .def_property_readonly("shape", &Edge::shape, "Sizes, None where unknown; or None.")
      .def_property_readonly("value", &Edge::value, "(value,), or () while it is unknown.")
      .def("set_kinds", &Edge::set_kinds, py::arg("kinds"))
      .def("set_shape", &Edge::set_shape, py::arg("shape"))
      .def("set_value", &Edge::set_value, py::arg("value"))
      .def("tie", &Edge::tie, py::arg("axis"), py::arg("other"), py::arg("other_axis"),
           "States that an axis has the size of another key's axis.");
}

}  // namespace mithril::bindings
