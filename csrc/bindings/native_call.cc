// A native call takes the arguments of its method, gathers arrays from dictionaries by names that
// were interned when it was made, and parts the results into dictionaries. What it does not know
// it leaves to the method, by returning NotImplemented: other arguments, arrays to be converted,
// keys that are missing or too many, data that do not fit, and with them all errors and warnings
// about these.
#include "bindings/native_call.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <structmember.h>

namespace mithril::bindings {
namespace {

using Input = ArrayProgram::Input;
/// Keys of a dictionary with their places among the results.
using Pairs = std::vector<std::pair<py::object, size_t>>;

py::object interned(const py::object& text) {
  PyObject* own = text.inc_ref().ptr();
  PyUnicode_InternInPlace(&own);
  return py::reinterpret_steal<py::object>(own);
}

/// The arguments of a method by place or by name.
template <size_t count>
class Arguments {
 public:
  Arguments(const std::array<const char*, count>& names, Py_ssize_t by_place)
      : by_place_(by_place) {
    for (size_t i = 0; i < count; ++i) names_[i] = interned(py::str(names[i]));
  }

  /// Borrowed references, None for what is not given; false where the call is for the method.
  bool read(PyObject* const* args, Py_ssize_t given, PyObject* names,
            std::array<PyObject*, count>& out) const {
    if (given > by_place_) return false;
    out.fill(Py_None);
    std::copy_n(args, given, out.begin());
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
      const size_t at = find(PyTuple_GET_ITEM(names, i));
      if (at < static_cast<size_t>(given) || at == count) return false;
      out[at] = args[given + i];
    }
    return true;
  }

 private:
  // Names in the text of a call are interned.
  size_t find(PyObject* name) const {
    for (size_t i = 0; i < count; ++i) {
      if (names_[i].ptr() == name) return i;
    }
    return count;
  }

  std::array<py::object, count> names_;
  Py_ssize_t by_place_;
};

/// Tells how many entries it has; -1 where it is no dictionary. None is an empty one.
Py_ssize_t size_of(PyObject* dictionary) {
  if (dictionary == Py_None) return 0;
  return PyDict_CheckExact(dictionary) ? PyDict_GET_SIZE(dictionary) : -1;
}

/// A borrowed entry; null where there is none.
PyObject* entry(PyObject* dictionary, py::handle key) {
  if (dictionary == Py_None) return nullptr;
  PyObject* value = PyDict_GetItemWithError(dictionary, key.ptr());
  if (value == nullptr) PyErr_Clear();  // of somebody's key: the method meets it, too
  return value;
}

void set(const py::object& dictionary, const py::object& key, PyObject* value) {
  if (PyDict_SetItem(dictionary.ptr(), key.ptr(), value) != 0) throw py::error_already_set();
}

template <class... Items>
py::object named_tuple(const py::object& type, Items... items) {
  auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
  PyObject* tuple = cls->tp_alloc(cls, sizeof...(items));
  if (tuple == nullptr) throw py::error_already_set();
  Py_ssize_t i = 0;
  (PyTuple_SET_ITEM(tuple, i++, items.release().ptr()), ...);
  return py::reinterpret_steal<py::object>(tuple);
}

/// Results that become entries of a dictionary.
class Entries {
 public:
  explicit Entries(const Pairs& pairs) {
    for (const auto& [key, place] : pairs) entries_.push_back({interned(key), place});
  }
  py::object made(std::span<PyObject* const> results) const {
    return with(py::reinterpret_steal<py::object>(PyDict_New()), results);
  }
  py::object updated(PyObject* old, std::span<PyObject* const> results) const {
    return with(py::reinterpret_steal<py::object>(PyDict_Copy(old)), results);
  }

 private:
  struct Entry {
    py::object key;
    size_t place;
  };
  py::object with(py::object out, std::span<PyObject* const> results) const {
    if (!out) throw py::error_already_set();
    for (const Entry& entry : entries_) set(out, entry.key, results[entry.place]);
    return out;
  }
  std::vector<Entry> entries_;
};

/// Tells where a program's inputs are: the number of a dictionary among those of a call, and the
/// key.
class Sources {
 public:
  using List = std::vector<std::pair<size_t, py::object>>;
  explicit Sources(const List& pairs) {
    for (const auto& [dictionary, key] : pairs) sources_.push_back({dictionary, interned(key)});
  }
  size_t size() const { return sources_.size(); }

  /// False where one is missing. `numbers` count on from the dictionaries; they have no keys.
  bool gather(std::span<PyObject* const> dictionaries, std::span<const void* const> numbers,
              std::span<Input> to, Held& held) const {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& from = sources_[i];
      if (from.dictionary >= dictionaries.size()) {
        to[i].number = numbers[from.dictionary - dictionaries.size()];
        continue;
      }
      to[i].array = entry(dictionaries[from.dictionary], from.key);
      if (to[i].array == nullptr) return false;
      held[i] = py::handle(to[i].array).inc_ref().ptr();
    }
    return true;
  }

 private:
  struct Source {
    size_t dictionary;
    py::object key;
  };
  std::vector<Source> sources_;
};

// ------------------------------------------------------------------------------------------ calls

class NativeCall {
 public:
  virtual ~NativeCall() = default;
  /// As a vectorcall, but that exceptions are thrown. Nothing: the call is for the method.
  virtual py::object call(PyObject* const* args, Py_ssize_t given, PyObject* names) = 0;
  /// Objects that may refer back to who holds the call.
  virtual int traverse(visitproc, void*) const { return 0; }
};

/// `evaluate(params, data)` of a model without state.
class EvaluateCall final : public NativeCall {
 public:
  EvaluateCall(std::shared_ptr<ArrayProgram> program, const Sources::List& inputs,
               const Pairs& outputs)
      : program_(std::move(program)), inputs_(inputs), outputs_(outputs) {}

  py::object call(PyObject* const* args, Py_ssize_t given, PyObject* names) override {
    std::array<PyObject*, kArguments> values;
    if (!arguments_.read(args, given, names, values)) return {};
    for (size_t i = 2; i < kArguments; ++i) {
      if (values[i] != Py_None) return {};
    }
    const Py_ssize_t params = size_of(values[0]), data = size_of(values[1]);
    if (params < 0 || data < 0) return {};
    if (params + data != static_cast<Py_ssize_t>(inputs_.size())) return {};
    Row<Input> inputs(inputs_.size(), {});
    Held arrays(inputs_.size());
    if (!inputs_.gather({values.data(), 2}, {}, inputs.get(), arrays)) return {};
    Held results(program_->output_count());
    if (!program_->try_run(inputs.get(), results.get())) return {};
    return outputs_.made(results.get());
  }

 private:
  static constexpr size_t kArguments = 6;

  const Arguments<kArguments> arguments_{
      {"params", "data", "output_gradients", "state", "wrt", "fetch"}, 2};
  std::shared_ptr<ArrayProgram> program_;
  Sources inputs_;  // 0: params, 1: data
  Entries outputs_;
};

/// Tells a training step where its arrays stand.
struct StepLayout {
  Sources::List inputs;  // 0: params, 1: data, 2: state, then slots, the step's number and the rate
  Pairs params, states, outputs;
  std::vector<std::pair<py::object, Pairs>> slots;
  size_t given;  // entries of params, data and state together
};

/// `step(params, opt_state, data, state)` of the engine's program for one optimizer, as long as
/// that has the numbers that the program was made for.
class StepCall final : public NativeCall {
 public:
  StepCall(std::shared_ptr<ArrayProgram> program, const StepLayout& layout, py::object optimizer,
           py::object numbers, py::object result, bool is_double)
      : program_(std::move(program)),
        inputs_(layout.inputs),
        params_(layout.params),
        states_(layout.states),
        outputs_(layout.outputs),
        given_(static_cast<Py_ssize_t>(layout.given)),
        optimizer_(std::move(optimizer)),
        numbers_(std::move(numbers)),
        result_(std::move(result)),
        is_double_(is_double) {
    for (const auto& [name, entries] : layout.slots)
      slots_.push_back({interned(name), Entries(entries)});
  }

  py::object call(PyObject* const* args, Py_ssize_t given, PyObject* names) override {
    std::array<PyObject*, 4> values;
    if (!arguments_.read(args, given, names, values)) return {};
    const auto [params, opt_state, data, state] = values;
    if (!PyDict_CheckExact(params) || !PyDict_CheckExact(opt_state)) return {};
    const Py_ssize_t in_data = size_of(data), in_state = size_of(state);
    if (in_data < 0 || in_state < 0) return {};
    if (PyDict_GET_SIZE(params) + in_data + in_state != given_) return {};
    Numbers numbers;
    if (!has_same_numbers() || !read_numbers(opt_state, numbers)) return {};

    Held dictionaries(kOwn + slots_.size());
    for (size_t i = 0; i < dictionaries.get().size(); ++i) {
      PyObject* const one = i == 0   ? params
                            : i == 1 ? data
                            : i == 2 ? state
                                     : entry(opt_state, slots_[i - kOwn].name);
      if (one == nullptr || (i >= kOwn && !PyDict_CheckExact(one))) return {};
      dictionaries[i] = py::handle(one).inc_ref().ptr();
    }
    Row<Input> inputs(inputs_.size(), {});
    Held arrays(inputs_.size());
    const void* const rate = is_double_ ? static_cast<void*>(&numbers.rate) : &numbers.single_rate;
    const std::array<const void*, 2> pointers = {&numbers.step, rate};
    if (!inputs_.gather(dictionaries.get(), pointers, inputs.get(), arrays)) return {};
    Held results(program_->output_count());
    if (!program_->try_run(inputs.get(), results.get())) return {};
    return parted(dictionaries.get(), numbers.step, results.get());
  }

  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(optimizer_.ptr());
    Py_VISIT(numbers_.ptr());
    return 0;
  }

 private:
  static constexpr size_t kOwn = 3;  // dictionaries before those of slots

  struct Slot {
    py::object name;
    Entries entries;
  };
  struct Numbers {
    int64_t step;
    double rate;
    float single_rate;
  };

  // Numbers of an optimizer are the attributes that its program was compiled with: all but the
  // rate. Equal ones that are other objects go the long way, once.
  bool has_same_numbers() const {
    const auto attributes =
        py::reinterpret_steal<py::object>(PyObject_GenericGetDict(optimizer_.ptr(), nullptr));
    if (!attributes) {
      PyErr_Clear();
      return false;
    }
    Py_ssize_t at = 0, same = 0;
    PyObject *name = nullptr, *value = nullptr;
    while (PyDict_Next(attributes.ptr(), &at, &name, &value) != 0) {
      const bool is_same = entry(numbers_.ptr(), name) == value;
      if (!is_same && name != lr_.ptr()) return false;
      same += is_same ? 1 : 0;
    }
    return same == PyDict_GET_SIZE(numbers_.ptr());
  }

  bool read_numbers(PyObject* opt_state, Numbers& out) const {
    PyObject* step = entry(opt_state, step_);
    if (step == nullptr || !PyLong_CheckExact(step)) return false;
    int overflow = 0;
    out.step = PyLong_AsLongLongAndOverflow(step, &overflow);
    if (overflow != 0 || out.step == std::numeric_limits<int64_t>::max()) return false;
    const auto rate =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(optimizer_.ptr(), lr_.ptr()));
    if (!rate) PyErr_Clear();
    if (!rate || !PyFloat_CheckExact(rate.ptr())) return false;
    out.rate = PyFloat_AS_DOUBLE(rate.ptr());
    out.single_rate = static_cast<float>(out.rate);
    return is_double_ || std::isfinite(out.single_rate);
  }

  py::object parted(std::span<PyObject* const> old, int64_t step,
                    std::span<PyObject* const> results) const {
    auto opt_state = py::reinterpret_steal<py::object>(PyDict_New());
    if (!opt_state) throw py::error_already_set();
    set(opt_state, step_, py::int_(step + 1).ptr());
    for (size_t i = 0; i < slots_.size(); ++i) {
      const py::object slot = slots_[i].entries.updated(old[kOwn + i], results);
      set(opt_state, slots_[i].name, slot.ptr());
    }
    py::object params = params_.updated(old[0], results);
    py::object states = states_.made(results), outputs = outputs_.made(results);
    return named_tuple(result_, std::move(params), std::move(opt_state), std::move(states),
                       std::move(outputs));
  }

  const Arguments<4> arguments_{{"params", "opt_state", "data", "state"}, 4};
  const py::object step_ = interned(py::str("step")), lr_ = interned(py::str("lr"));
  std::shared_ptr<ArrayProgram> program_;
  Sources inputs_;
  Entries params_, states_, outputs_;
  std::vector<Slot> slots_;
  Py_ssize_t given_;
  py::object optimizer_, numbers_, result_;
  bool is_double_;
};

// ---------------------------------------------------------------------------------- Python's face

struct NativeCallObject {
  PyObject ob_base;  // what PyObject_HEAD says
  vectorcallfunc vectorcall;
  NativeCall* call;
};

NativeCall& call_of(PyObject* self) { return *reinterpret_cast<NativeCallObject*>(self)->call; }

// Of data that do not fit the method tells in the words of the model's ops, when it runs them.
bool is_for_the_method(const core::Error& error) {
  return error.kind == core::ErrorKind::kShape || error.kind == core::ErrorKind::kValue ||
         error.kind == core::ErrorKind::kIndex;
}

py::object call_or_leave(NativeCall& native, PyObject* const* args, size_t count, PyObject* names) {
  try {
    return native.call(args, PyVectorcall_NARGS(count), names);
  } catch (const core::ErrorException& exception) {
    if (!is_for_the_method(exception.error())) throw;
    return {};
  }
}

PyObject* call_natively(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  try {
    py::object result = call_or_leave(call_of(self), args, count, names);
    return result ? result.release().ptr() : py::handle(Py_NotImplemented).inc_ref().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

int traverse_call(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return call_of(self).traverse(visit, arg);
}

void destroy_call(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  delete &call_of(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMemberDef call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeCallObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot call_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_call)},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse_call)},
                            {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                            {Py_tp_members, call_members},
                            {0, nullptr}};

PyType_Spec call_spec = {"mithril._core.NativeCall", sizeof(NativeCallObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_DISALLOW_INSTANTIATION,
                         call_slots};

PyTypeObject* call_type = nullptr;

py::object wrapped(std::unique_ptr<NativeCall> call) {
  NativeCallObject* const self = PyObject_GC_New(NativeCallObject, call_type);
  if (self == nullptr) throw py::error_already_set();
  self->vectorcall = call_natively;
  self->call = call.release();
  PyObject_GC_Track(reinterpret_cast<PyObject*>(self));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(self));
}

}  // namespace

void bind_native_calls(py::module_& module) {
  call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&call_spec));
  if (call_type == nullptr) throw py::error_already_set();
  py::class_<ArrayProgram, std::shared_ptr<ArrayProgram>>(module, "ArrayProgram",
                                                          "A program over NumPy arrays.");
  module.def(
      "evaluate_call",
      [](std::shared_ptr<ArrayProgram> program, const Sources::List& inputs, const Pairs& outputs) {
        return wrapped(std::make_unique<EvaluateCall>(std::move(program), inputs, outputs));
      },
      py::arg("program"), py::arg("inputs"), py::arg("outputs"),
      "`evaluate(params, data)`: inputs are (0 for params or 1 for data, key).");
  module.def(
      "step_call",
      [](std::shared_ptr<ArrayProgram> program, Sources::List inputs, Pairs params,
         std::vector<std::pair<py::object, Pairs>> slots, Pairs states, Pairs outputs, size_t given,
         py::object optimizer, py::object numbers, py::object result, bool is_double) {
        const StepLayout layout{std::move(inputs),  std::move(params), std::move(states),
                                std::move(outputs), std::move(slots),  given};
        return wrapped(std::make_unique<StepCall>(std::move(program), layout, std::move(optimizer),
                                                  std::move(numbers), std::move(result),
                                                  is_double));
      },
      py::arg("program"), py::kw_only(), py::arg("inputs"), py::arg("params"), py::arg("slots"),
      py::arg("states"), py::arg("outputs"), py::arg("given"), py::arg("optimizer"),
      py::arg("numbers"), py::arg("result"), py::arg("is_double"),
      "`step(params, opt_state, data, state)`: inputs are (0 for params, 1 for data, 2 for state, "
      "then a number for each slot, the step's number and the rate; key).");
}

}  // namespace mithril::bindings
