// Programs whose plans run on a device, whichever driver it has.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/device/executable.h"
#include "bindings/native_program.h"
#include "select/kernel_table.h"

namespace mithril::bindings {

class DeviceProgram : public NativeProgram {
 public:
  /// `families`: the kernels that the device has; `backend` chooses among them and the host's,
  /// which run on `pool` (null: the process's).
  DeviceProgram(ir::Graph graph, std::shared_ptr<device::Driver> driver,
                std::span<const select::KernelFamily> families,
                std::shared_ptr<const select::Backend> backend, device::Executable::Build build,
                SpecializationOptions options, const Donations& overwrites,
                std::shared_ptr<runtime::Recorder> recorder,
                std::shared_ptr<runtime::ThreadPool> pool = nullptr);

  /// As NativeProgram's; says of each step that falls back to the engine that it does, and of each
  /// that a library might do that it refuses it.
  py::list report(const Sizes& sizes) const override;

  /// The source for these sizes, how many steps there are, and how many run on the host.
  py::dict source(const Sizes& sizes) const;

 private:
  bool is_of_device(std::string_view kernel) const;
  void note_fallbacks(std::vector<select::SelectionReport>& reports) const;
  bool is_refused(const plan::Call* call) const;

  std::shared_ptr<device::Driver> driver_;
  std::span<const select::KernelFamily> families_;
};

/// Methods that all of them have.
template <class Class>
void def_device_program(Class& bound) {
  def_native_program(bound);
  bound.def("source", &DeviceProgram::source, py::arg("sizes"));
}

}  // namespace mithril::bindings
