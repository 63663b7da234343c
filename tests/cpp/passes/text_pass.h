// Pass tests are graph text in, graph text out.
#pragma once
#include <functional>
#include <string_view>

#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::passes {

inline ir::Graph parsed(std::string_view text) { return std::move(ir::parse(text)).or_throw(); }

using TextPass = std::function<core::Result<ir::Graph>(const ir::Graph&)>;

inline void expect_pass(std::string_view before, std::string_view after, const TextPass& pass) {
  const ir::Graph graph = parsed(before);
  const ir::Graph out = std::move(pass(graph)).or_throw();
  EXPECT_EQ(ir::print(out), after);
  const core::Status status = ir::verify(out);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

inline void expect_unchanged(std::string_view text, const TextPass& pass) {
  expect_pass(text, text, pass);
}

}  // namespace mithril::passes
