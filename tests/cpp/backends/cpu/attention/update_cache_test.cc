// Appends to a cache, as a copy and where it is.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "ir/registry.h"
#include "reference/support.h"

namespace mithril::cpu {
namespace {

using core::DType;
using core::HostValue;
using select::Operand;
using testing_support::Guarded;

constexpr int64_t kBatch = 3, kRoom = 5, kWidth = 4;

template <class T>
class UpdateCache : public ::testing::Test {
 protected:
  static constexpr DType kType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;

  UpdateCache() {
    for (size_t i = 0; i < cache_.size(); ++i) cache_.data()[i] = static_cast<T>(i);
  }

  // `turned`: the input lies with its places behind each other, batch by batch.
  struct Case {
    int64_t count = 1, offset = 0;
    DType offset_type = DType::kInt64;
    bool offset_is_operand = true, turned = false;
  };

  plan::Step make(const Case& c) {
    const std::vector<int64_t> shape = {kBatch, c.count, kWidth};
    std::vector<int64_t> strides = {c.count * kWidth, kWidth, 1};
    if (c.turned) strides = {kWidth * c.count, 1, c.count};
    Operand inputs[] = {
        {{0, 0, false}, kType, {kBatch, kRoom, kWidth}, {kRoom * kWidth, kWidth, 1}},
        {{1, 0, false}, kType, shape, strides},
        {}};
    ir::Node node;
    if (c.offset_is_operand) {
      inputs[2] = {{2, 0, false}, c.offset_type, {}, {}};
    } else {
      node.attrs.set("offset", HostValue(c.offset));
    }
    const Operand outputs[] = {inputs[0]};
    const ir::OpDef& op = *ir::Registry::global().find("update_cache");
    const select::KernelRequest request{node, op, inputs, outputs};
    const select::KernelDef* kernel = kernel_table().find(request);
    EXPECT_NE(kernel, nullptr);
    return std::move(kernel->make(request)).or_throw();
  }

  // New places hold 100, 101 … in their order; the step writes to `out`.
  void run(const Case& c, T* out) {
    const Guarded<T> input(static_cast<size_t>(kBatch * c.count * kWidth));
    for (int64_t i = 0; i < kBatch * c.count * kWidth; ++i) {
      const int64_t b = i / (c.count * kWidth), place = i / kWidth % c.count, d = i % kWidth;
      const int64_t at = c.turned ? (b * kWidth + d) * c.count + place : i;
      input.data()[at] = static_cast<T>(100 + i);
    }
    int64_t wide = c.offset;
    auto narrow = static_cast<int32_t>(c.offset);
    const plan::Step step = make(c);
    std::vector<void*> buffers = {cache_.data(), input.data()};
    if (c.offset_is_operand) {
      buffers.push_back(c.offset_type == DType::kInt64 ? static_cast<void*>(&wide) : &narrow);
    }
    buffers.push_back(out);
    plan::ErrorSlot slot;
    const plan::KernelArgs args{buffers.data(), nullptr, nullptr, step.data.get(),
                                nullptr,        0,       &slot,   nullptr};
    EXPECT_TRUE(step.partial_update && step.inplace.size() == 1 && step.inplace[0].operand == 0);
    EXPECT_EQ(step.units, kBatch);
    EXPECT_EQ(step.kernel(args, 1, step.units), plan::KernelStatus::kOk);
    EXPECT_EQ(step.kernel(args, 0, 1), plan::KernelStatus::kOk);
  }

  void expect(const Case& c, const T* found) {
    for (int64_t i = 0; i < kBatch * kRoom * kWidth; ++i) {
      const int64_t b = i / (kRoom * kWidth), place = i / kWidth % kRoom - c.offset;
      const bool is_new = place >= 0 && place < c.count;
      const int64_t wanted = is_new ? 100 + (b * c.count + place) * kWidth + i % kWidth : i;
      EXPECT_EQ(found[i], static_cast<T>(wanted)) << i;
    }
  }

  void check(const Case& c) {
    const std::vector<T> before = cache_.copy();
    const Guarded<T> out(cache_.size());
    fill_nan(out);
    run(c, out.data());
    expect(c, out.data());
    EXPECT_EQ(cache_.copy(), before);
    run(c, cache_.data());
    expect(c, cache_.data());
    std::copy(before.begin(), before.end(), cache_.data());
  }

  const Guarded<T> cache_{static_cast<size_t>(kBatch * kRoom * kWidth)};
};
TYPED_TEST_SUITE(UpdateCache, testing_support::Reals);

TYPED_TEST(UpdateCache, WritesTheNewPlaces) {
  this->check({.count = 1, .offset = 0});
  this->check({.count = 1, .offset = 4});
  this->check({.count = 2, .offset = 3, .offset_type = DType::kInt32});
  this->check({.count = 5, .offset = 0});
  this->check({.count = 3, .offset = 1, .offset_is_operand = false});
  this->check({.count = 3, .offset = 2, .turned = true});
}

// Places that are there already are not even read.
TYPED_TEST(UpdateCache, InItsPlaceWritesNothingElse) {
  std::fill_n(this->cache_.data(), this->cache_.size(), TypeParam(-1));
  this->run({.count = 1, .offset = 2}, this->cache_.data());
  for (int64_t i = 0; i < kBatch * kRoom * kWidth; ++i) {
    EXPECT_EQ(this->cache_.data()[i] == TypeParam(-1), i / kWidth % kRoom != 2) << i;
  }
}

TYPED_TEST(UpdateCache, WithoutRoomIsNaN) {
  for (const int64_t offset : {int64_t{4}, int64_t{5}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    const Guarded<TypeParam> out(this->cache_.size());
    std::fill_n(out.data(), out.size(), TypeParam(0));
    this->run({.count = 2, .offset = offset}, out.data());
    for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(std::isnan(out.data()[i])) << i;
  }
}

TYPED_TEST(UpdateCache, OfNoPlacesIsTheCache) { this->check({.count = 0, .offset = 9}); }

}  // namespace
}  // namespace mithril::cpu
