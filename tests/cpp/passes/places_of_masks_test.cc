#include "passes/places_of_masks.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

TEST(PlacesOfMasks, AMaskOfRowsIsAnIndexOfIntegers) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[N, 3], %m: bool[N]) {
  %0 = index(%x, %m) : f32[k, 3]
  return y=%0
}
)",
              R"(graph m<f32, i64>(%x: f32[N, 3], %m: bool[N]) {
  %0 = true_places(%m) : i64[k]
  %1 = index(%x, %0) : f32[k, 3]
  return y=%1
}
)",
              places_of_masks);
}

TEST(PlacesOfMasks, TheAxesOfAMaskBecomeOne) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[N, 3, 2], %m: bool[N, 3], %v: f32[k, 2]) {
  %0 = index_add(%x, %v, %m) : f32[N, 3, 2]
  return y=%0
}
)",
              R"(graph m<f32, i64>(%x: f32[N, 3, 2], %m: bool[N, 3], %v: f32[k, 2]) {
  %0 = reshape(%x, shape=('3*N', 2)) : f32[3*N, 2]
  %1 = true_places(%m) : i64[k]
  %2 = index(%0, %1) : f32[k, 2]
  %3 = index_add(%0, %v, %1) : f32[3*N, 2]
  %4 = reshape(%3, shape=('N', 3, 2)) : f32[N, 3, 2]
  return y=%4
}
)",
              places_of_masks);
}

TEST(PlacesOfMasks, SizesThatMayDifferAreChecked) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[N], %m: bool[M]) {
  %0 = index(%x, %m) : f32[k]
  return y=%0
}
)",
              R"(graph m<f32, i64>(%x: f32[N], %m: bool[M]) {
  %0 = true_places(%m, sizes=('N',)) : i64[k]
  %1 = index(%x, %0) : f32[k]
  return y=%1
}
)",
              places_of_masks);
}

TEST(PlacesOfMasks, OneMaskHasItsPlacesOnce) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[N], %m: bool[N], %v: f32[k]) {
  %0 = index(%x, %m) : f32[k]
  %1 = index_add(%x, %v, %m) : f32[N]
  return y=%0, z=%1
}
)",
              R"(graph m<f32, i64>(%x: f32[N], %m: bool[N], %v: f32[k]) {
  %0 = true_places(%m) : i64[k]
  %1 = index(%x, %0) : f32[k]
  %2 = index(%x, %0) : f32[k]
  %3 = index_add(%x, %v, %0) : f32[N]
  return y=%1, z=%3
}
)",
              places_of_masks);
}

TEST(PlacesOfMasks, IntegersStay) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[N, 3], %i: i64[5]) {
  %0 = index(%x, %i) : f32[5, 3]
  return y=%0
}
)",
                   places_of_masks);
}

}  // namespace
}  // namespace mithril::passes
