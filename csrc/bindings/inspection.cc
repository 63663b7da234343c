#include "bindings/inspection.h"

#include <functional>

#include "backends/cpu/machine/peak.h"
#include "bindings/gil.h"
#include "plan/memory.h"
#include "runtime/memory_limit.h"
#include "runtime/recording.h"

namespace mithril::bindings {
namespace {

constexpr size_t kMostEvents = size_t{1} << 20;

/// Equal for plans with the same kernels in the same order.
size_t structure_of(const plan::Plan& plan) {
  size_t out = plan.steps.size();
  for (const plan::PlannedStep& planned : plan.steps) {
    out = out * 31 + std::hash<std::string>()(planned.step.label);
  }
  return out;
}

py::tuple contributor(const plan::Plan& plan, const plan::Contributor& one) {
  const plan::Step& step = plan.steps[static_cast<size_t>(one.writer)].step;
  if (one.buffer < 0) {
    return py::make_tuple(one.bytes, step.label, step.location.path, py::none(), py::none());
  }
  const plan::BufferSpec& buffer = plan.buffers[static_cast<size_t>(one.buffer)];
  return py::make_tuple(one.bytes, step.label, buffer.path, from_dtype(buffer.dtype),
                        py::tuple(py::cast(buffer.shape)));
}

py::dict bytes_by_index(const plan::Plan& plan, plan::BufferSpec::Kind kind) {
  py::dict out;
  for (const plan::BufferSpec& buffer : plan.buffers) {
    if (buffer.kind == kind) out[py::int_(buffer.index)] = buffer.bytes;
  }
  return out;
}

/// (label, path, dtype and shape of its first result, bytes, work, whether that is flops, whether
/// it runs plans of its own).
py::tuple step_row(const plan::Plan& plan, const plan::Step& step) {
  py::object dtype = py::none(), shape = py::none();
  for (const plan::OperandRef& use : step.operands) {
    if (!use.write) continue;
    const plan::BufferSpec& buffer = plan.buffers[static_cast<size_t>(use.buffer)];
    dtype = from_dtype(buffer.dtype);
    shape = py::tuple(py::cast(buffer.shape));
    break;
  }
  return py::make_tuple(step.label, step.location.path, dtype, shape, plan::bytes_of(plan, step),
                        step.work.amount, step.work.unit == plan::Work::Unit::kFlops,
                        step.loop != nullptr || step.branch != nullptr);
}

/// {"steps": [(step_row, threads, count, nanoseconds)], "events": [(step, thread, start,
/// nanoseconds)], "dropped": events beyond the most that are kept}.
py::dict recorded(const runtime::Recording& recording) {
  std::map<runtime::Recording::Key, int64_t> number;
  py::list steps, events;
  const std::vector<runtime::Recording::Event> kept = recording.events();  // before their totals
  for (const auto& [key, total] : recording.totals()) {
    number[key] = static_cast<int64_t>(number.size());
    const plan::Step& step = key.first->steps[static_cast<size_t>(key.second)].step;
    steps.append(
        py::make_tuple(step_row(*key.first, step), total.threads, total.count, total.nanoseconds));
  }
  for (const runtime::Recording::Event& event : kept) {
    events.append(py::make_tuple(number.at({event.plan, event.step}), event.thread, event.start,
                                 event.nanoseconds));
  }
  py::dict out;
  out["steps"] = steps;
  out["events"] = events;
  out["dropped"] = recording.dropped();
  return out;
}

}  // namespace

py::dict memory_of(const plan::Plan& plan, int32_t step) {
  const plan::MemoryUse use = plan::memory_use(plan);
  py::list contributors;
  for (const plan::Contributor& one : use.contributors) contributors.append(contributor(plan, one));
  const int32_t asked = step < 0 ? use.peak_step : step;
  const std::vector<int64_t> live = plan::live_bytes(plan);
  const bool is_there = asked >= 0 && static_cast<size_t>(asked) < live.size();
  py::dict out;
  out["arena"] = use.arena;
  out["regions"] = use.regions;
  out["scratch"] = use.scratch;
  out["inputs"] = bytes_by_index(plan, plan::BufferSpec::Kind::kInput);
  out["outputs"] = use.outputs;
  out["constants"] = use.constants;
  out["peak_step"] = use.peak_step;
  out["steps"] = plan.steps.size();
  out["live"] = is_there ? live[static_cast<size_t>(asked)] : 0;
  out["contributors"] = contributors;
  out["structure"] = structure_of(plan);
  return out;
}

py::list report_of(const std::vector<select::SelectionReport>& report) {
  py::list out;
  for (const select::SelectionReport& one : report) {
    py::list members, inner;
    for (const select::SelectionReport::Member& member : one.members) {
      members.append(py::make_tuple(member.op, member.path));
    }
    for (const std::vector<select::SelectionReport>& region : one.inner)
      inner.append(report_of(region));
    out.append(py::make_tuple(one.kernel, members, one.shape, one.notes, inner));
  }
  return out;
}

void bind_inspection(py::module_& module) {
  using runtime::Recorder;
  py::class_<Recorder, std::shared_ptr<Recorder>>(
      module, "Recorder", "What the programs of one compiled model ask whether they are watched.")
      .def(py::init<>())
      .def(
          "start",
          [](Recorder& self) {
            return self.start(std::make_shared<runtime::Recording>(kMostEvents));
          },
          "False where a recording is under way.")
      .def("stop", [](Recorder& self) -> py::object {
        const auto recording = self.stop();
        return recording == nullptr ? py::object(py::none()) : py::object(recorded(*recording));
      });
  module.def(
      "cpu_peak",
      [](const std::shared_ptr<runtime::ThreadPool>& pool, int threads, bool is_double) {
        const GilRelease release;
        runtime::ThreadPool& used = pool ? *pool : runtime::ThreadPool::shared();
        return cpu::measure_peak(used, threads, is_double);
      },
      py::arg("pool"), py::arg("threads"), py::arg("is_double"),
      "Operations in a second at best, measured now.");
  module.def("thread_count", [] { return runtime::ThreadPool::shared().thread_count(); });
  module.def("memory_limit", &runtime::memory_limit);
  module.def("print_bytes", &plan::print_bytes);
}

}  // namespace mithril::bindings
