// Printed plans that have been compiled: shared objects, as plans that executables run.
#pragma once
#include <string>

#include "core/status.h"
#include "emit/c_plan.h"
#include "plan/plan.h"

namespace mithril::c {

/// A plan of one step that runs the entry of the shared object at `path`, which was compiled from
/// `printed`; its errors name the steps of `plan`. The object stays open as long as the step is
/// there.
core::Result<plan::Plan> load(const std::string& path, const emit::CPlanOptions& options,
                              emit::CPlan printed, const plan::Plan& plan);

}  // namespace mithril::c
