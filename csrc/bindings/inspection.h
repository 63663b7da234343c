// What plans, reports and recordings look like in Python.
#pragma once
#include <vector>

#include "bindings/python.h"
#include "plan/plan.h"
#include "select/selection_report.h"

namespace mithril::bindings {

/// Sizes in bytes, contributors, and what is in use at `step` (-1: at the peak).
py::dict memory_of(const plan::Plan& plan, int32_t step);

/// [(kernel, [(op, path)], shape, notes, [inner])] in order of execution.
py::list report_of(const std::vector<select::SelectionReport>& report);

}  // namespace mithril::bindings
