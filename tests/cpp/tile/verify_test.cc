// Covers: tile/program.cc
#include <functional>

#include <gtest/gtest.h>

#include "tile/builder.h"

namespace mithril::tile {
namespace {

using core::DType;

Program good() {
  Builder t;
  const Reg x = t.load(DType::kFloat32), c = t.load(DType::kBool);
  t.store(select(c, x, reduce_sum(x)));
  return t.finish();  // load, load, reduce_sum, select, store
}

std::string broken(const std::function<void(Program&)>& breaking) {
  Program program = good();
  breaking(program);
  const core::Status status = verify(program);
  return status.ok() ? "" : status.error().message;
}

TEST(Verify, AcceptsWhatTheBuilderWrites) { EXPECT_TRUE(verify(good()).ok()); }

TEST(Verify, NamesTheInstructionAndTheRule) {
  EXPECT_EQ(broken([](Program& p) { p.code[2].operands[0] = 3; }),
            "tile program: %2 reduce_sum: operand 0 is not defined before");
  EXPECT_EQ(broken([](Program& p) { p.code[2].operands[1] = 0; }),
            "tile program: %2 reduce_sum: takes 1 operands");
  EXPECT_EQ(broken([](Program& p) { p.code[2].level = Level::kLane; }),
            "tile program: %2 reduce_sum: result must be a row value");
  EXPECT_EQ(broken([](Program& p) { p.code[3].dtype = DType::kFloat64; }),
            "tile program: %3 select: result must be f32, got f64");
  EXPECT_EQ(broken([](Program& p) { p.code[3].operands[0] = 0; }),
            "tile program: %3 select: condition must be bool");
  EXPECT_EQ(broken([](Program& p) { p.code[3].level = Level::kRow; }),
            "tile program: %3 select: wrong level");
  EXPECT_EQ(broken([](Program& p) { p.code[0].index = 7; }), "tile program: %0 load: no input 7");
  EXPECT_EQ(broken([](Program& p) { p.outputs.push_back(DType::kFloat32); }),
            "tile program: %5 end: output 1 is not stored");
  EXPECT_EQ(broken([](Program& p) { p.code[2].opcode = Opcode::kReduceAny; }),
            "tile program: %2 reduce_any: does not take f32");
  EXPECT_EQ(broken([](Program& p) { p.code[0].dtype = p.inputs[0] = DType::kAnyFloat; }),
            "tile program: %0 load: type must be concrete");
}

TEST(Verify, KnowsTables) {
  Builder t;
  t.store(t.lookup(t.load(DType::kInt32), Table::kGelu));  // load, lookup, store
  Program program = t.finish();
  ASSERT_TRUE(verify(program).ok());
  program.code[1].index = kTableCount;
  EXPECT_EQ(verify(program).error().message, "tile program: %1 lookup: no table 16");
  program.code[1].index = 0;
  program.code[0].dtype = program.inputs[0] = DType::kInt64;
  EXPECT_EQ(verify(program).error().message, "tile program: %1 lookup: index must be i32");
}

}  // namespace
}  // namespace mithril::tile
