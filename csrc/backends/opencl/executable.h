// A plan on a device of OpenCL: inputs go in, all steps go to one queue, outputs come out.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/opencl/device.h"
#include "backends/opencl/plan_code.h"
#include "runtime/executable.h"

namespace mithril::opencl {

/// Runs of all executables of a device take turns: they share its queue and its temporary memory.
class Executable final : public runtime::Executable {
 public:
  /// Prints and builds the plan, and brings its constants to the device.
  static core::Result<std::shared_ptr<const Executable>> make(std::shared_ptr<Device> device,
                                                              plan::Plan plan);

  const plan::Plan& plan() const override { return plan_; }
  core::Status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                   const runtime::RunControl& control = {}) const override;

 private:
  class Run;
  /// A plan with what its steps need at hand.
  struct Prepared {
    std::vector<Owned<cl_mem>> constants;
    std::vector<std::unique_ptr<const runtime::HostExecutable>> host;  // by step; null: not there
    std::vector<cl_kernel> kernels;                                    // by step
  };

  Executable(std::shared_ptr<Device> device, plan::Plan plan)
      : device_(std::move(device)), plan_(std::move(plan)) {}
  core::Status prepare(const PlanCode& code);
  core::Status prepare_constants(const plan::Plan& plan, Prepared& prepared) const;
  core::Result<cl_kernel> kernel_of(const std::string& name);

  std::shared_ptr<Device> device_;
  plan::Plan plan_;
  std::vector<int64_t> input_bytes_, output_bytes_;
  Source source_;
  std::shared_ptr<const Owned<cl_program>> program_;  // null: no step is a kernel of the device
  std::unordered_map<std::string, Owned<cl_kernel>> kernels_;  // by name
  std::unordered_map<const PlanCode*, Prepared> prepared_;
};

}  // namespace mithril::opencl
