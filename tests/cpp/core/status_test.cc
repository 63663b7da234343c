#include "core/status.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

Error bad_axis(int axis) {
  return fail(ErrorKind::kValue, Code::kValueAxis, "sum: axis {} is out of range", axis);
}

Result<int> half(int value) {
  if (value % 2 != 0) return bad_axis(value);
  return value / 2;
}

Status check_half(int value) {
  MITHRIL_RETURN_IF_ERROR(half(value).ok() ? Status() : Status(bad_axis(value)));
  return {};
}

Result<int> quarter(int value) {
  MITHRIL_ASSIGN(const int first, half(value));
  MITHRIL_ASSIGN(const int second, half(first));
  return second;
}

TEST(Status, IsOkByDefaultAndOnePointerWide) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

TEST(Status, CarriesItsError) {
  Status status = bad_axis(3);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kValueAxis);
  EXPECT_EQ(status.error().message, "sum: axis 3 is out of range");
}

TEST(Status, ThrowsItsErrorOnRequest) {
  EXPECT_NO_THROW(Status().or_throw());
  Status status = bad_axis(3);
  try {
    status.or_throw();
    FAIL() << "nothing was thrown";
  } catch (const ErrorException& exception) {
    EXPECT_EQ(exception.error().kind, ErrorKind::kValue);
    EXPECT_STREQ(exception.what(), "sum: axis 3 is out of range");
  }
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half(8), 4);
  ASSERT_FALSE(half(7).ok());
  EXPECT_EQ(half(7).error().message, "sum: axis 7 is out of range");
  EXPECT_EQ(half(8).or_throw(), 4);
  EXPECT_THROW(half(7).or_throw(), ErrorException);
}

TEST(Result, HoldsTypesThatOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(result).or_throw();
  EXPECT_EQ(*taken, 5);
}

TEST(Macros, ReturnTheFirstFailure) {
  EXPECT_TRUE(check_half(4).ok());
  EXPECT_EQ(check_half(5).error().message, "sum: axis 5 is out of range");
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(9).error().message, "sum: axis 9 is out of range");
  EXPECT_EQ(quarter(6).error().message, "sum: axis 3 is out of range");
}

TEST(Check, ReportsABugOfOurs) {
  EXPECT_NO_THROW(MITHRIL_CHECK(1 + 1 == 2, "arithmetic"));
  try {
    internal_error("/somewhere/csrc/plan/arena.cc", 12, "offset 3 is not aligned");
    FAIL() << "nothing was thrown";
  } catch (const ErrorException& exception) {
    EXPECT_EQ(exception.error().kind, ErrorKind::kInternal);
    EXPECT_STREQ(exception.what(),
                 "offset 3 is not aligned (plan/arena.cc:12); this is a bug in mithril");
  }
  EXPECT_THROW(MITHRIL_CHECK(false, "value {}", 1), ErrorException);
}

}  // namespace
}  // namespace mithril::core
