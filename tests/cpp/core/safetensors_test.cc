#include "core/safetensors.h"

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

TEST(Safetensors, ReadsPlacesInTheirOrder) {
  const auto found = read_safetensors(
      R"({"__metadata__": {"a": "b"},
          "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [2, 26]},
          "b": {"shape": [], "data_offsets": [0, 2], "dtype": "BF16"},
          "none": {"dtype": "I64", "shape": [0, 5], "data_offsets": [26, 26]}}   )",
      26);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].name, "b");
  EXPECT_EQ((*found)[0].dtype, DType::kBFloat16);
  EXPECT_EQ((*found)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*found)[2].begin, 26);
}

TEST(Safetensors, RefusesHeadersThatLie) {
  const char* rows[] = {
      "",
      "[]",
      R"({"a": 1})",
      R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",     // too few bytes
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",     // a hole
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}})",     // backwards
      R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}})",    // negative
      R"({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]}})",     // unknown
      R"({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8, 8]}})",  // three
      R"({"a": {"dtype": "F64", "shape": [1]}})",                             // none
      R"({"a": {"dtype": "F64", "shape": [1], "shape": [1], "data_offsets": [0, 8]}})",
      R"({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], "x": 1}})",
      R"({"a": {"dtype": "F64", "shape": [4611686018427387904, 4], "data_offsets": [0, 8]}})",
      R"({"a": {"dtype": "F64", "shape": [9223372036854775808], "data_offsets": [0, 8]}})",
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
          "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
          "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
          "c": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
      R"({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}} x)",
  };
  for (const char* text : rows) EXPECT_FALSE(read_safetensors(text, 8).ok()) << text;
  const char* right = R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})";
  EXPECT_TRUE(read_safetensors(right, 8).ok());
  EXPECT_FALSE(read_safetensors(right, 7).ok());
  EXPECT_FALSE(read_safetensors(right, 9).ok()) << "data that no tensor has";
}

TEST(Safetensors, NamesEveryConcreteDtype) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(safetensors_name(dtype).empty(), is_abstract(dtype));
  }
}

}  // namespace
}  // namespace mithril::core
