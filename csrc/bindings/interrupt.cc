#include "bindings/interrupt.h"

#include "runtime/recording.h"

namespace mithril::bindings {

namespace {

constexpr int64_t kBetween = 10'000'000;  // nanoseconds

}  // namespace

SignalWatch::SignalWatch() : last_(runtime::now()) {}

void SignalWatch::poll(void* context) {
  auto& self = *static_cast<SignalWatch*>(context);
  const int64_t now = runtime::now();
  if (self.raised_ || now - self.last_ < kBetween) return;
  const GilAcquire gil;
  const core::ScopedInterrupt none({});  // a handler's own work is not this one's
  if (PyErr_CheckSignals() != 0) {
    self.raised_.emplace();
    self.cancel_ = true;
  }
  self.last_ = runtime::now();
}

void SignalWatch::rethrow() {
  if (raised_) throw *std::move(raised_);
}

}  // namespace mithril::bindings
