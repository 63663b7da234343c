// The optimizer's update, appended to a gradient program: one graph is one training step.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// An optimizer op with its numbers: "adam", {{"beta1", 0.9} …}. What each parameter carries from
/// step to step are the op's inputs between `grad` and `t` or `lr`; `t` counts steps from 1.
struct Optimizer {
  std::string op;
  ir::Attrs attrs;
};

/// Names of what a parameter carries: {"m", "v"} for adam.
core::Result<std::vector<std::string>> optimizer_slots(const Optimizer& optimizer);

/// Before: outputs …, grad.w                       (of passes::differentiate)
/// After:  inputs  …, $opt.m.w $opt.v.w (like w), $opt.t: i64[] (steps so far), $opt.lr: f32[]
///         outputs …, $new.w, $new.$opt.m.w, $new.$opt.v.w, $new.$opt.t           (without grad.w)
/// `$opt.t` is there when the op counts steps. The update of a parameter reads its old value.
core::Result<ir::Graph> append_optimizer(const ir::Graph& gradient, const Optimizer& optimizer,
                                         std::span<const std::string> params);

}  // namespace mithril::passes
