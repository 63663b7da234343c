// Covers: emit/c_own_math.cc
// The text of small plans. What it computes: tests/cpp/backends/c/load_test.cc; that own functions
// are those of libm: tests/python/formats/test_c_export.py.
#include "emit/c_plan.h"

#include <gtest/gtest.h>

#include "tile/builder.h"

namespace mithril::emit {
namespace {

plan::BufferSpec buffer(plan::BufferSpec::Kind kind, int32_t index, std::vector<int64_t> shape) {
  plan::BufferSpec out;
  out.kind = kind;
  out.index = index;
  out.bytes = 4;
  for (const int64_t size : shape) out.bytes *= size;
  out.shape = std::move(shape);
  return out;
}

// y = x + x of 2 by 3, at a hostile place of a model.
plan::Plan doubling() {
  tile::Builder tile;
  const tile::Reg x = tile.load(core::DType::kFloat32);
  tile.store(tile.emit(tile::Opcode::kAdd, {x, x}));
  plan::Steps steps;
  steps.buffers = {buffer(plan::BufferSpec::Kind::kInput, 0, {2, 3}),
                   buffer(plan::BufferSpec::Kind::kOutput, 0, {2, 3})};
  plan::Step step;
  step.call = std::make_shared<const plan::Call>(
      plan::LoopCall{tile.finish(), {2, 3}, {}, {{3, 1}, {3, 1}}, {{}, {}}});
  step.operands = {{0, 0, false}, {1, 0, true}};
  step.label = "add";
  step.location.path = "mlp*/\n?\?/";
  steps.steps.push_back(std::move(step));
  return std::move(plan::make_plan(std::move(steps))).or_throw();
}

TEST(CPlan, IsReadable) {
  const CPlan made = std::move(print_c_plan(doubling(), {"twice", 1})).or_throw();
  const size_t at = made.text.find("M_STEP void add_0");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(made.text.substr(at),
            R"(M_STEP void add_0(const m_f32* restrict a0, m_f32* restrict a1) {
  for (m_i64 k0 = 0; k0 < 6; ++k0) {
    const m_f32 v0 = a0[k0];
    const m_f32 v1 = m_add_f32(v0, v0);
    a1[k0] = v1;
  }
}

int twice_run(const void* const* inputs, void* const* outputs, const void* const* constants,
    void* memory, twice_context* context) {
  unsigned char* const arena = memory;
  (void)inputs, (void)outputs, (void)constants, (void)arena, (void)context;
  /* 0: add of mlp%2A%2F%0A%3F%3F%2F: f32[2, 3] -> f32[2, 3] */
  add_0((const m_f32*)inputs[0], (m_f32*)outputs[0]);
  return 0;
}
)");
}

TEST(CPlan, SaysWhatCallersNeed) {
  const CPlan made = std::move(print_c_plan(doubling(), {"twice", 1})).or_throw();
  EXPECT_NE(made.header.find("#define TWICE_INPUTS 1"), std::string::npos);
  EXPECT_NE(made.header.find("int twice_run("), std::string::npos);
  EXPECT_EQ(made.parts.size(), 1u);
}

TEST(CPlan, StandsAloneIfAsked) {
  const CPlan hosted = std::move(print_c_plan(doubling(), {"twice", 1})).or_throw();
  EXPECT_TRUE(hosted.needs_libm);
  EXPECT_NE(hosted.text.find("#include <math.h>"), std::string::npos);
  const CPlan alone = std::move(print_c_plan(doubling(), {"twice", 1, true})).or_throw();
  EXPECT_FALSE(alone.needs_libm);
  EXPECT_EQ(alone.text.find("math.h"), std::string::npos);
  EXPECT_NE(alone.text.find("m_own_fma_f32(m_f32 a"), std::string::npos);
}

TEST(CPlan, RefusesNamesThatAreNone) {
  for (const char* name : {"", "1a", "a b", "a;b", "\xc3\xa9"}) {
    const auto made = print_c_plan(doubling(), {name, 1});
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.error().code, core::Code::kValueArgument);
  }
}

}  // namespace
}  // namespace mithril::emit
