#include "backends/device/peak.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "emit/c_like_text.h"
#include "emit/c_prune.h"

namespace mithril::device {
namespace {

// More than the latency of a multiply-add times those that begin in a cycle, and with two operands
// no more than 16 registers.
constexpr int kChains = 10;
constexpr int64_t kRounds = 16;                 // of multiply-adds that a kernel's loop begins with
constexpr int64_t kMostRounds = 1 << 24;        // a kernel of these takes longer than is measured
constexpr int64_t kWorthMeasuring = 2'000'000;  // nanoseconds
constexpr int kRepetitions = 3;                 // of which the fastest counts
constexpr int64_t kItemsOfCore = 4;             // of a CPU: they may not all begin at once
constexpr int64_t kItemsOfUnit = 2048;  // of other devices: threads that a unit has at a time
constexpr int64_t kCopied = 128 << 20;  // bytes, more than caches hold
constexpr int64_t kMemoryShare = 16;    // of the device's, if that is less

// A device of few long items has explicit vectors, of one register each.
struct Lanes {
  std::string type, fma;
  int64_t count = 1;
};
Lanes lanes_of(const PrintOptions& options, bool is_double) {
  const char* const scalar = is_double ? "f64" : "f32";
  if (!options.is_vectored) return {fmt::format("m_{}", scalar), fmt::format("m_fma_{}", scalar)};
  const int64_t count = options.tile.vector_bytes / (is_double ? 8 : 4);
  return {fmt::format("{}{}", is_double ? "double" : "float", count), "fma", count};
}

std::string chains_text(const PrintOptions& options, const char* name, bool is_double) {
  const Lanes lanes = lanes_of(options, is_double);
  const Dialect& dialect = options.dialect;
  std::string begin, step, sum = "x0";
  for (int i = 0; i < kChains; ++i) {
    begin += fmt::format("  {0} x{1} = ({0})((m_{2})({1} + item));\n", lanes.type, i,
                         is_double ? "f64" : "f32");
    step += fmt::format("    x{0} = {1}(x{0}, a, b);\n", i, lanes.fma);
    if (i > 0) sum += fmt::format(" + x{}", i);
  }
  return fmt::format(
      R"({entry}{name}({global}const {byte}* m0, const m_i64 o0, {global}{byte}* m1, const m_i64 o1) {{
  const m_i64 item = {item};
  {global}const m_i64* const given = ({global}const m_i64*)(m0 + o0);
  const m_i64 rounds = given[0];
  const {type} a = ({type})(1 / ({scalar})given[1]), b = ({type})(1 / ({scalar})given[2]);
{begin}  for (m_i64 i = 0; i < rounds; ++i) {{
{step}  }}
  (({global}{type}*)(m1 + o1))[item] = {sum};
}}
)",
      fmt::arg("entry", dialect.entry(0)), fmt::arg("name", name),
      fmt::arg("global", dialect.global), fmt::arg("byte", dialect.byte),
      fmt::arg("item", dialect.item), fmt::arg("type", lanes.type),
      fmt::arg("scalar", is_double ? "m_f64" : "m_f32"), fmt::arg("begin", begin),
      fmt::arg("step", step), fmt::arg("sum", sum));
}

// Items of a CPU copy a piece each; others take elements in turn, side by side with neighbours.
std::string copy_text(const PrintOptions& options, int64_t elements, int64_t items) {
  const int64_t lanes = options.is_vectored ? options.tile.vector_bytes / 8 : 1;
  const std::string type = lanes > 1 ? fmt::format("ulong{}", lanes) : "m_w64";
  const Dialect& dialect = options.dialect;
  const int64_t count = elements / lanes, each = (count + items - 1) / items;
  const std::string loop =
      options.is_cpu
          ? fmt::format("m_i64 i = item * {0}; i < (item + 1) * {0} && i < {1}; ++i", each, count)
          : fmt::format("m_i64 i = item; i < {}; i += {}", count, items);
  return fmt::format(
      R"({entry}copy_peak({global}const {byte}* m0, const m_i64 o0, {global}{byte}* m1, const m_i64 o1) {{
  const m_i64 item = {item};
  {global}const {type}* const from = ({global}const {type}*)(m0 + o0);
  {global}{type}* const to = ({global}{type}*)(m1 + o1);
  if (item >= {items}) return;
  for ({loop}) to[i] = from[i];
}}
)",
      fmt::arg("entry", dialect.entry(0)), fmt::arg("global", dialect.global),
      fmt::arg("byte", dialect.byte), fmt::arg("item", dialect.item), fmt::arg("type", type),
      fmt::arg("items", items), fmt::arg("loop", loop));
}

class Measurement {
 public:
  explicit Measurement(Driver& driver)
      : driver_(driver),
        options_(driver.print_options()),
        items_(options_.units * (options_.is_cpu ? kItemsOfCore : kItemsOfUnit)),
        elements_(std::min(kCopied, driver.memory() / kMemoryShare) / 8) {}

  core::Result<Peak> run() {
    std::string kernels =
        chains_text(options_, "chains_f32", false) + copy_text(options_, elements_, items_);
    if (options_.has_doubles) kernels += chains_text(options_, "chains_f64", true);
    MITHRIL_ASSIGN(program_, driver_.build(emit::prune_c(options_.prelude(), kernels) + kernels));
    Peak out;
    MITHRIL_ASSIGN(out.float32, operations("chains_f32", false));
    if (options_.has_doubles) {
      MITHRIL_ASSIGN(out.float64, operations("chains_f64", true));
    }
    MITHRIL_ASSIGN(out.bandwidth, bandwidth());
    return out;
  }

 private:
  core::Result<int64_t> timed(const Kernel& kernel, const Memory& from, const Memory& to) {
    const Ref operands[] = {{&from, 0}, {&to, 0}};
    MITHRIL_RETURN_IF_ERROR(driver_.begin_timing());
    core::Status launched = driver_.launch(kernel, operands, {items_, 0});
    auto nanoseconds = driver_.end_timing();
    if (!launched.ok()) return launched;
    MITHRIL_ASSIGN(const int64_t taken, std::move(nanoseconds));
    return std::max<int64_t>(taken, 1);  // a clock may be coarse
  }

  core::Result<int64_t> best_of_three(const Kernel& kernel, const Memory& from, const Memory& to) {
    int64_t best = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      MITHRIL_ASSIGN(const int64_t taken, timed(kernel, from, to));
      best = i == 0 ? taken : std::min(best, taken);
    }
    return best;
  }

  // More rounds until a launch takes long enough. Chains stay near 1: x a + b of 1 is 1.
  core::Result<double> operations(const char* name, bool is_double) {
    MITHRIL_ASSIGN(const auto kernel, program_->kernel(name));
    const Lanes lanes = lanes_of(options_, is_double);
    // Where more items run than were asked for they write, too.
    const int64_t room = items_ + kItemsOfUnit;
    MITHRIL_ASSIGN(const auto to, driver_.allocate(room * lanes.count * 8));
    for (int64_t rounds = kRounds;; rounds *= 4) {
      const std::array<int64_t, 3> given = {rounds, 2, 2};  // a and b are halves
      MITHRIL_ASSIGN(const auto from, driver_.constant(std::as_bytes(std::span(given))));
      MITHRIL_ASSIGN(int64_t taken, timed(*kernel, *from, *to));
      if (taken < kWorthMeasuring && rounds < kMostRounds) continue;
      MITHRIL_ASSIGN(taken, best_of_three(*kernel, *from, *to));
      const double count = 2.0 * kChains * static_cast<double>(items_ * lanes.count * rounds);
      return 1e9 * count / static_cast<double>(taken);
    }
  }

  core::Result<double> bandwidth() {
    MITHRIL_ASSIGN(const auto kernel, program_->kernel("copy_peak"));
    MITHRIL_ASSIGN(const auto from, driver_.allocate(8 * elements_));
    MITHRIL_ASSIGN(const auto to, driver_.allocate(8 * elements_));
    MITHRIL_RETURN_IF_ERROR(timed(*kernel, *from, *to).status());  // untouched memory is slow
    MITHRIL_ASSIGN(const int64_t taken, best_of_three(*kernel, *from, *to));
    return 1e9 * 16.0 * static_cast<double>(elements_) / static_cast<double>(taken);
  }

  Driver& driver_;
  const PrintOptions options_;
  const int64_t items_, elements_;
  std::shared_ptr<const Program> program_;
};

}  // namespace

core::Result<Peak> measure_peak(Driver& driver) { return Measurement(driver).run(); }

}  // namespace mithril::device
