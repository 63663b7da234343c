#include "bindings/device_program.h"

#include "bindings/inspection.h"

namespace mithril::bindings {
namespace {

SpecializationOptions on_device(SpecializationOptions options,
                                const std::shared_ptr<device::Driver>& driver,
                                std::shared_ptr<const select::Backend> backend,
                                device::Executable::Build build) {
  options.backend = std::move(backend);
  options.make_executable =
      [driver, build = std::move(build)](
          plan::Plan plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
    MITHRIL_ASSIGN(auto made, device::Executable::make(driver, std::move(plan), build));
    return std::shared_ptr<const runtime::Executable>(std::move(made));
  };
  return options;
}

}  // namespace

DeviceProgram::DeviceProgram(ir::Graph graph, std::shared_ptr<device::Driver> driver,
                             std::span<const select::KernelFamily> families,
                             std::shared_ptr<const select::Backend> backend,
                             device::Executable::Build build, SpecializationOptions options,
                             const Donations& overwrites,
                             std::shared_ptr<runtime::Recorder> recorder,
                             std::shared_ptr<runtime::ThreadPool> pool)
    : NativeProgram(std::move(graph),
                    on_device(std::move(options), driver, std::move(backend), std::move(build)),
                    overwrites, std::move(pool), std::move(recorder), "", driver.get()),
      driver_(std::move(driver)),
      families_(families) {}

bool DeviceProgram::is_of_device(std::string_view kernel) const {
  if (kernel == "loop" || kernel == "view" || kernel == "constant" || kernel == "copy") return true;
  for (const select::KernelFamily family : families_) {
    for (const select::KernelDef& row : family()) {
      if (kernel == row.name) return true;
    }
  }
  return false;
}

bool DeviceProgram::is_refused(const plan::Call* call) const {
  const auto* const function = call == nullptr ? nullptr : std::get_if<plan::FunctionCall>(call);
  if (function == nullptr || function->product == nullptr || !driver_->check_process().ok()) {
    return false;
  }
  const auto prepared = driver_->prepare(*function->product);
  return !prepared.ok() && prepared.error().kind == core::ErrorKind::kUnsupported;
}

void DeviceProgram::note_fallbacks(std::vector<select::SelectionReport>& reports) const {
  for (select::SelectionReport& report : reports) {
    if (report.inner.empty() && !is_of_device(report.kernel)) {
      report.notes.push_back(
          fmt::format("It runs on the host: {} has no kernel of its own for it.", driver_->kind()));
    }
    const bool is_loop = report.kernel == "loop" || report.kernel == "copy";
    if (is_loop && report.call == nullptr) {
      report.notes.push_back(
          fmt::format("It runs on the host: {} has no float64.", driver_->name()));
    }
    if (is_refused(report.call.get())) {
      report.notes.emplace_back("The library finds no algorithm for it on this device.");
    }
    for (auto& inner : report.inner) note_fallbacks(inner);
  }
}

py::list DeviceProgram::report(const Sizes& sizes) const {
  std::vector<select::SelectionReport> out;
  preview(sizes, &out);
  note_fallbacks(out);
  return report_of(out);
}

py::dict DeviceProgram::source(const Sizes& sizes) const {
  const plan::Plan plan = preview(sizes, nullptr);
  const auto printed = device::print_plan(plan, driver_->print_options()).or_throw();
  py::dict out;
  out["text"] = printed.text;
  out["steps"] = plan.steps.size();
  out["host_steps"] = printed.host_steps;
  return out;
}

}  // namespace mithril::bindings
