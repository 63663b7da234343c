#include "plan/cost.h"

#include <limits>

namespace mithril::plan {

namespace {

constexpr double kCall = 50;
constexpr double kBytesPerNanosecond = 16;
constexpr double kUnknownByte = 8;  // a transform of 256 numbers by its definition

}  // namespace

double nanoseconds_of(const Plan& plan, const Step& step) {
  if (step.loop != nullptr || step.branch != nullptr) {
    return std::numeric_limits<double>::infinity();
  }
  const auto bytes = static_cast<double>(bytes_of(plan, step));
  if (step.nanoseconds == 0) return kCall + bytes * kUnknownByte;
  return kCall + step.nanoseconds + bytes / kBytesPerNanosecond;
}

}  // namespace mithril::plan
