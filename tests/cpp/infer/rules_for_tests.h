// Rules written by hand as op blocks would write them, and a small model to use them in.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "infer/rule.h"
#include "infer/solver.h"

namespace mithril::infer {

#define ASSERT_DONE(status)                        \
  do {                                             \
    const core::Status done = (status);            \
    ASSERT_TRUE(done.ok()) << done.error().text(); \
  } while (0)

/// Cells by name, one scope, locations numbered by line.
class World {
 public:
  Solver solver;

  CellId cell(const std::string& name, KindSet kinds = kAny) {
    const auto it = cells_.find(name);
    if (it != cells_.end()) return it->second;
    return cells_[name] = solver.new_cell(kinds, name);
  }
  FactId fact(const std::string& text = "") {
    return solver.new_fact({"train.py", ++line_, ""}, text);
  }
  /// "2, N, _, ...V, 3".
  core::Status shape(const std::string& name, const std::string& text);
  core::Status kind(const std::string& name, KindSet kinds) {
    return solver.assert_kind(cell(name), kinds, fact(name));
  }
  core::Status value(const std::string& name, const core::HostValue& value) {
    return solver.assert_value(cell(name), value, fact(name));
  }
  struct Use {
    std::vector<std::pair<std::string, std::string>> keys;            // key → cell
    std::vector<std::pair<std::string, core::HostValue>> attributes;  // key → value
  };
  core::Status use(const std::string& op, const Use& use);
  core::Status settle() { return solver.propagate(100000); }

  std::string print(const std::string& name) { return solver.print_shape(cell(name)); }
  std::string print_value(const std::string& name) { return solver.print_value(cell(name)); }
  std::string print_kind(const std::string& name) { return to_string(solver.kinds(cell(name))); }

 private:
  std::map<std::string, CellId> cells_;
  ScopeId scope_ = solver.new_scope();
  int line_ = 0;
};

/// Rules by op name; the same map for every test.
const Rule& test_rule(const std::string& op);
std::string_view test_op_name(const std::string& op);

}  // namespace mithril::infer
