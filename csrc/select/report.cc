// Selection's report of its choices, and the error where there is none.
#include <utility>

#include "select/selector.h"

namespace mithril::select {

using core::Code;
using core::ErrorKind;

// What emit() noted of this group, under what fuse() says of it.
void Selector::tell(int32_t group) {
  const bool is_step = group_report_.kernel != "view" && group_report_.kernel != "constant";
  is_step_.push_back(is_step && !group_report_.kernel.empty());
  SelectionReport report = report_of(graph_, fusion_, group, is_step_);
  if (!is_step_.back()) report.notes.clear();
  if (is_step_.back()) report.call = steps_.steps.back().call;
  report.kernel = std::exchange(group_report_.kernel, "");
  report.inner = std::exchange(group_report_.inner, {});
  for (std::string& note : group_report_.notes) report.notes.push_back(std::move(note));
  group_report_.notes.clear();
  options_.report->push_back(std::move(report));
}

void Selector::note_kernels(const KernelRequest& request, const KernelDef* chosen) {
  if (options_.report == nullptr) return;
  for (const KernelDef* kernel : backend_.kernels().rows_of(request.op.name)) {
    if (kernel->packed != chosen->packed) continue;
    if (kernel == chosen) {
      if (*kernel->matches.text == 0) continue;
      group_report_.notes.push_back(
          fmt::format("kernel {}: it takes {}", kernel->name, kernel->matches.text));
    } else if (!is_allowed(*kernel, request)) {
      group_report_.notes.push_back(fmt::format(
          "kernel {} is not taken: it is not canonical, as exact_conv or deterministic wants",
          kernel->name));
    } else if (const char* lack = backend_.kernels().lacks(*kernel, request)) {
      group_report_.notes.push_back(
          fmt::format("kernel {} is not taken: the device has no {}", kernel->name, lack));
    } else if (kernel->matches(request)) {
      group_report_.notes.push_back(
          fmt::format("kernel {} would do, but {} comes first", kernel->name, chosen->name));
    } else {
      group_report_.notes.push_back(
          fmt::format("kernel {} is not taken: it wants {}", kernel->name, kernel->matches.text));
    }
  }
}

Status Selector::unsupported(const Node& node, const ir::OpDef& op) const {
  std::string types;
  for (const ValueId id : node.operands) {
    if (id == kNoValue) continue;
    types += (types.empty() ? "" : ", ") + to_string(graph_.type(id), graph_.dims);
  }
  core::Error error =
      core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                 "the {} backend has no kernel for {}({})", backend_.name(), op.name, types);
  error.location = graph_.location_of(node);
  return error;
}

}  // namespace mithril::select
