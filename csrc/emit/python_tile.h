// Tile programs of single ops as Python expressions over `ops`.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "tile/program.h"

namespace mithril::emit {

/// An input of the program: a value that has a name, or a number that is spelled where it is used.
struct TileOperand {
  std::string text;
  bool is_number = false;
};

/// Tells an expression what it needs to know of its node.
struct TileContext {
  std::span<const TileOperand> operands;  // by number of the load
  std::string axis = "None";              // of reductions and scans
  std::string keepdim = "False";
  std::string shape;  // of the result, for positions; "" if it has symbols
};

struct TileText {
  std::vector<std::string> temporaries;  // statements "t0 = ops.f(…)", in order
  std::string expression;
};

/// `program` has one output and no macro expanded. Fails, with the instruction's name, on
/// instructions that no framework has.
core::Result<TileText> python_tile(const tile::Program& program, const TileContext& context);

}  // namespace mithril::emit
