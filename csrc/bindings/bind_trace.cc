// Debug output as Python knows it: sys.stderr, `logging`, a table at exit.
#include "bindings/gil.h"
#include "bindings/python.h"
#include "core/env.h"
#include "runtime/profile.h"
#include "specialize/trace.h"

namespace mithril::bindings {
namespace {

constexpr const char* kTopics[] = {"passes", "memory", "codegen", "recompile", "kernels"};
constexpr const char* kLevels[] = {"debug", "info"};

const char* name_of(Topic topic) { return kTopics[static_cast<int>(topic)]; }
const char* name_of(LogLevel level) { return kLevels[static_cast<int>(level)]; }

/// A function of mithril/base/logging.py. What fails in it is shown and forgotten: looking on must
/// not change what happens. Ctrl-C and the end of the program are not about it, and go on.
template <class... Arguments>
bool call(const char* function, const Arguments&... arguments) {
  if (Py_IsInitialized() == 0) return false;
  const GilAcquire gil;
  const py::error_scope pending;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  try {
    return py::module_::import("mithril.base.logging")
        .attr(function)(arguments...)
        .template cast<bool>();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    error.discard_as_unraisable("mithril.base.logging");
    return false;
  }
}

bool is_heard(Topic topic, LogLevel level) {
  return call("listens", name_of(topic), name_of(level));
}

TraceSinks python_sinks() {
  return {[](std::string_view text) { call("write", std::string(text)); }, is_heard,
          [](Topic topic, LogLevel level, std::string_view text) {
            call("log", name_of(topic), name_of(level), std::string(text));
          }};
}

py::list env_table() {
  py::list out;
  for (const core::EnvVariable& row : core::env_table()) {
    out.append(py::make_tuple(row.name, row.values, row.meaning));
  }
  return out;
}

py::list log_levels() {
  py::list out;
  for (const core::Env::LogLevel& row : core::env().log) {
    out.append(py::make_tuple(row.topic, row.level));
  }
  return out;
}

py::list profile_rows() {
  py::list out;
  runtime::Profile* const profile = runtime::Profile::process();
  if (profile == nullptr) return out;
  for (const runtime::Profile::Row& row : profile->rows()) {
    out.append(py::make_tuple(row.kernel, row.count, row.seconds, row.bytes));
  }
  return out;
}

void profile_add(const std::string& kernel, int64_t nanoseconds, int64_t bytes) {
  if (auto* profile = runtime::Profile::process()) profile->counter(kernel).add(nanoseconds, bytes);
}

void print_profile() { call("write", runtime::print(runtime::Profile::process()->rows())); }

}  // namespace

void bind_trace(py::module_& module) {
  py::class_<Trace, std::shared_ptr<Trace>>(module, "Trace", "The report of one compile.");
  set_trace_sinks(python_sinks());
  module.def("env_table", &env_table, "(name, values, meaning) of every variable.");
  module.def("log_levels", &log_levels, "(topic, level) as MITHRIL_LOG has them.");
  module.def(
      "is_profiling", [] { return core::env().profile; }, "Whether MITHRIL_PROFILE is set.");
  module.def("profile_rows", &profile_rows, "(kernel, count, seconds, bytes) of what ran so far.");
  module.def("profile_add", &profile_add, py::arg("kernel"), py::arg("nanoseconds"),
             py::arg("bytes"));
  if (core::env().profile) {
    py::module_::import("atexit").attr("register")(py::cpp_function(&print_profile));
  }
}

}  // namespace mithril::bindings
