// A plan on a device: inputs go in, all steps go to one queue, outputs come out.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/device/driver.h"
#include "backends/device/plan_code.h"
#include "backends/device/recordings.h"
#include "runtime/executable.h"

namespace mithril::device {

/// Runs of all executables of a device take turns: they share its queue and its temporary memory.
class Executable final : public runtime::Executable {
 public:
  using Build = std::function<core::Result<std::shared_ptr<const Program>>(const std::string&)>;
  /// Prints the plan, has its text built, and brings its constants to the device.
  static core::Result<std::shared_ptr<const Executable>> make(std::shared_ptr<Driver> driver,
                                                              plan::Plan plan, const Build& build);

  ~Executable() override;

  const plan::Plan& plan() const override { return plan_; }
  core::Status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                   const runtime::RunControl& control = {}) const override;

 private:
  class Run;
  /// A plan with what its steps need at hand.
  struct Prepared {
    std::vector<MemoryPtr> constants;                                  // null: nothing is there
    std::vector<std::unique_ptr<const runtime::HostExecutable>> host;  // by step; null: not there
    std::vector<const Kernel*> kernels;                                // by step
    std::vector<std::vector<const Kernel*>> before;                    // by step
    std::vector<const Kernel*> chains;                                 // by step
  };

  Executable(std::shared_ptr<Driver> driver, plan::Plan plan)
      : driver_(std::move(driver)), plan_(std::move(plan)) {}
  core::Status compile(PrintOptions options, const Build& build);
  core::Status build_source(const Build& build);
  /// Finds how many threads the kernels let do an item together, where some let fewer than their
  /// launches have; INT_MAX where none does.
  core::Result<int> most_threads(const PlanCode& code);
  /// Makes libraries ready for products; `refused` gets those for which they have no algorithm.
  core::Status prepare_products(const PlanCode& code,
                                std::set<const plan::LibraryProduct*>& refused);
  core::Status prepare(const PlanCode& code);
  core::Status prepare_constants(const plan::Plan& plan, Prepared& prepared) const;
  core::Status prepare_report();
  void prepare_recording();
  core::Result<const Kernel*> kernel_of(const std::string& name);

  std::shared_ptr<Driver> driver_;
  plan::Plan plan_;
  std::vector<int64_t> input_bytes_, output_bytes_;
  std::vector<bool> is_overwritten_;  // by input: a step writes there, and the caller gets it back
  Source source_;
  std::shared_ptr<const Program> program_;  // null: no step is a kernel of the device
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;  // by name
  std::unordered_map<const PlanCode*, Prepared> prepared_;
  std::unordered_map<const plan::LibraryProduct*, std::unique_ptr<const PreparedProduct>> products_;
  MemoryPtr report_;  // of a Report; null: no step reports
  bool is_recordable_ = false;
  double nanoseconds_ = 0;            // of all steps, where they are recordable
  mutable Recordings recordings_;     // of the steps of the plan
  mutable Run* innermost_ = nullptr;  // of the runs that there are: each but the first within one
};

}  // namespace mithril::device
