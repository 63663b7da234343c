// Errors of the engine as Python exceptions, and the user's place that they name.
#include <string_view>

#include "bindings/python.h"
#include "core/status.h"

namespace mithril::bindings {
namespace {

py::tuple place(const core::Location& location) {
  return py::make_tuple(location.file, location.line, location.path);
}

// Text of models may hold any byte; a message must always be printable.
py::str text(const std::string& bytes) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

// The text of a line of user code, where Python can read the file.
std::string source_line(const core::Location& location) {
  const py::object line =
      py::module_::import("linecache").attr("getline")(location.file, location.line);
  return line.attr("strip")().attr("encode")("utf-8", "replace").cast<std::string>();
}

core::Location to_location(const py::handle& place) {
  const auto [file, line] = place.cast<std::pair<std::string, int>>();
  return {file, line, {}};
}

// The long form for errors that Python finds: facts are (text, (file, line), by, depth).
std::string error_text(const std::string& message, const py::tuple& place, const py::list& facts,
                       const std::vector<std::string>& reasons, const std::string& hint) {
  core::Error error;
  error.message = message;
  error.location = to_location(place);
  for (const py::handle fact : facts) {
    const auto fields = fact.cast<py::tuple>();
    error.facts.push_back({fields[0].cast<std::string>(), to_location(fields[1]),
                           fields[2].cast<std::string>(), fields[3].cast<int>()});
  }
  error.reasons = reasons;
  error.hint = hint;
  if (error.location.known()) error.source = source_line(error.location);
  return error.text();
}

void raise(core::Error error) {
  if (!error.location.known()) {
    std::string path = std::move(error.location.path);
    error.location = user_location();
    error.location.path = std::move(path);
  }
  if (!error.facts.empty() && error.location.known()) error.source = source_line(error.location);
  py::list facts;
  for (const core::Error::Fact& fact : error.facts) {
    facts.append(py::make_tuple(text(fact.text), place(fact.location), text(fact.by)));
  }
  const py::object exception =
      py::module_::import("mithril.errors")
          .attr("from_core")(static_cast<int>(error.kind), static_cast<int>(error.code),
                             text(error.text()), text(error.hint), place(error.location), facts);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

// "/…/mithril/": frames of files below it are ours.
std::string& package_folder() {
  static std::string folder;
  return folder;
}

bool is_ours(PyCodeObject* code) {
  Py_ssize_t size = 0;
  const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
  if (file == nullptr) {
    PyErr_Clear();
    return false;
  }
  return std::string_view(file, static_cast<size_t>(size)).starts_with(package_folder());
}

bool is_notebook_cell(std::string_view file) {
  return file.starts_with("<ipython-input-") || file.find("ipykernel_") != std::string_view::npos;
}

// "In[3]": the number by which the reader of a notebook knows a cell.
std::string cell_name(const std::string& file) {
  try {
    return py::module_::import("mithril.base.notebooks").attr("cell")(file).cast<std::string>();
  } catch (const py::error_already_set&) {
    return file;
  }
}

std::string file_name(PyCodeObject* code) {
  Py_ssize_t size = 0;
  const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
  if (file != nullptr) {
    std::string name(file, static_cast<size_t>(size));
    return is_notebook_cell(name) ? cell_name(name) : name;
  }
  PyErr_Clear();
  return "";
}

}  // namespace

core::Location user_location() {
  core::Location location;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool found = !is_ours(code);
    if (found) {
      location.file = file_name(code);
      location.line = PyFrame_GetLineNumber(frame);
    }
    Py_DECREF(code);
    PyFrameObject* outer = found ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return location;
}

bool only_our_frames(PyObject* traceback) {
  for (auto* at = reinterpret_cast<PyTracebackObject*>(traceback);
       at != nullptr && reinterpret_cast<PyObject*>(at) != Py_None; at = at->tb_next) {
    PyCodeObject* code = PyFrame_GetCode(at->tb_frame);
    const bool ours = is_ours(code);
    Py_DECREF(code);
    if (!ours) return false;
  }
  return true;
}

void bind_errors(py::module_& module) {
  const py::list path = py::module_::import("mithril").attr("__path__");
  package_folder() = path[0].cast<std::string>() + "/";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const core::ErrorException& exception) {
      raise(exception.error());
    } catch (const py::cast_error&) {
      raise(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                       "an argument cannot be read: requires text of valid unicode, a number or an "
                       "object of mithril"));
    }
  });
  module.def("error_text", &error_text, "The text of an error with facts.");
  module.def(
      "user_location",
      [] {
        const core::Location location = user_location();
        return py::make_tuple(location.file, location.line);
      },
      "File and line of the innermost caller outside of mithril.");
}

}  // namespace mithril::bindings
