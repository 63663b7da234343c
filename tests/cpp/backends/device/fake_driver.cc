#include "backends/device/fake_driver.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "backends/device/injection.h"
#include "emit/c_like_text.h"
#include "tile/evaluate.h"

namespace mithril::device::test {
namespace {

using core::Code;
using core::ErrorKind;
using core::Status;
using Bytes = std::vector<std::byte>;

constexpr std::byte kScrambled{
    0xA5};  // who takes the device's memory for the host's reads nonsense

std::string entry(int /*threads*/) { return "kernel void "; }

constexpr Dialect kDialect = {.head = &emit::kHeadCuda,
                              .global = "",
                              .byte = "unsigned char",
                              .restricts = "restrict",
                              .function = "static void ",
                              .entry = entry,
                              .item = "item",
                              .block = "item"};

Status failed(const char* symbol, int status) {
  if (status == kNoMemory) {
    return core::fail(ErrorKind::kMemory, Code::kOutOfMemory, "Fake: {} has no memory", symbol);
  }
  return core::fail(ErrorKind::kDevice, Code::kDevice, "Fake: {} failed with {}", symbol, status);
}

}  // namespace

/// Shared by what is on its way: memory may be given back before that has happened.
class FakeDriver::Block final : public Memory {
 public:
  explicit Block(int64_t bytes)
      : data_(std::make_shared<Bytes>(static_cast<size_t>(bytes), std::byte{0xFF} ^ kScrambled)) {
    count_object(1);
  }
  ~Block() override { count_object(-1); }

  /// A place that outlives the memory.
  struct Place {
    std::shared_ptr<Bytes> data;
    int64_t offset = 0;

    bool has(int64_t at, int64_t bytes) const {
      const int64_t first = offset + at;
      return bytes == 0 ||
             (data != nullptr && first >= 0 && first + bytes <= static_cast<int64_t>(data->size()));
    }
    Status get(int64_t at, std::byte* to, int64_t bytes) const {
      if (!has(at, bytes)) return outside(at, bytes);
      for (int64_t i = 0; i < bytes; ++i) {
        to[i] = (*data)[static_cast<size_t>(offset + at + i)] ^ kScrambled;
      }
      return {};
    }
    Status put(int64_t at, const std::byte* from, int64_t bytes) const {
      if (!has(at, bytes)) return outside(at, bytes);
      for (int64_t i = 0; i < bytes; ++i) {
        (*data)[static_cast<size_t>(offset + at + i)] = from[i] ^ kScrambled;
      }
      return {};
    }
    Status outside(int64_t at, int64_t bytes) const {
      return core::fail(ErrorKind::kInternal, Code::kInternal, "Fake: {} bytes at {} of {}", bytes,
                        offset + at, data == nullptr ? 0 : data->size());
    }
  };
  static Place place(const Ref& ref) {
    if (ref.memory == nullptr) return {};
    return {static_cast<const Block*>(ref.memory)->data_, ref.offset};
  }

 private:
  std::shared_ptr<Bytes> data_;
};

// ---------------------------------------------------------------- kernels

/// Computes what a kernel does; `passed`: which of its operands each one of the call is; `checked`:
/// its place in Source::checked; nothing: it reports nothing.
class FakeDriver::FakeKernel final : public Kernel {
 public:
  FakeKernel(plan::Call call, std::vector<size_t> passed, std::optional<int64_t> checked = {})
      : call_(std::move(call)), passed_(std::move(passed)), checked_(checked) {}
  FakeKernel(const FakeKernel& other)
      : Kernel(), call_(other.call_), passed_(other.passed_), checked_(other.checked_) {}

  Status run(const std::vector<Block::Place>& operands) const {
    std::vector<Block::Place> own;
    for (const size_t at : passed_) own.push_back(operands[at]);
    if (const auto* loop = std::get_if<plan::LoopCall>(&call_)) return run_loop(*loop, own);
    const auto& function = std::get<plan::FunctionCall>(call_);
    if (checked_) MITHRIL_RETURN_IF_ERROR(report(function, own[0], operands.back()));
    return run_product(function, own);
  }
  size_t operand_count() const {
    const size_t own = passed_.empty() ? 0 : *std::max_element(passed_.begin(), passed_.end()) + 1;
    return own + (checked_ ? 1 : 0);
  }

 private:
  static int64_t product(const std::vector<int64_t>& sizes) {
    int64_t out = 1;
    for (const int64_t size : sizes) out *= size;
    return out;
  }
  static int64_t offset_of(int64_t index, const std::vector<int64_t>& sizes,
                           const std::vector<int64_t>& strides) {
    int64_t out = 0;
    for (size_t axis = sizes.size(); axis-- > 0 && index != 0; index /= sizes[axis]) {
      out += index % sizes[axis] * strides[axis];
    }
    return out;
  }

  /// Calls `f(place in the operand, number)` for each element of a value of that level.
  template <class F>
  static Status each(const plan::LoopCall& call, size_t operand, tile::Level level, F f) {
    const int64_t reduced = level == tile::Level::kLane ? product(call.reduced) : 1;
    const int64_t kept = level == tile::Level::kUniform ? 1 : product(call.kept);
    for (int64_t at = 0; at < kept * reduced; ++at) {
      const int64_t place = offset_of(at / reduced, call.kept, call.kept_strides[operand]) +
                            offset_of(at % reduced, call.reduced, call.reduced_strides[operand]);
      MITHRIL_RETURN_IF_ERROR(f(place, at));
    }
    return {};
  }

  static Status run_loop(const plan::LoopCall& call, const std::vector<Block::Place>& operands) {
    const tile::Program& program = call.program;
    std::vector<Bytes> inputs;
    for (uint32_t k = 0; k < program.inputs.size(); ++k) {
      const auto size = static_cast<int64_t>(core::size_of(program.inputs[k]));
      Bytes& input = inputs.emplace_back();
      MITHRIL_RETURN_IF_ERROR(each(call, k, input_level(program, k), [&](int64_t place, int64_t) {
        input.resize(input.size() + static_cast<size_t>(size));
        return operands[k].get(place * size, &input[input.size() - static_cast<size_t>(size)],
                               size);
      }));
    }
    const auto outputs = tile::evaluate(program, product(call.kept), product(call.reduced), inputs);
    for (uint32_t k = 0; k < outputs.size(); ++k) {
      const size_t operand = program.inputs.size() + k;
      const auto size = static_cast<int64_t>(core::size_of(program.outputs[k]));
      MITHRIL_RETURN_IF_ERROR(
          each(call, operand, output_level(program, k), [&](int64_t place, int64_t at) {
            return operands[operand].put(place * size, &outputs[k][static_cast<size_t>(at * size)],
                                         size);
          }));
    }
    return {};
  }

  // "fake_copy(elements, from, to)" of float32, from one operand to another.
  static Status run_copy(int64_t elements, const Block::Place& from, const Block::Place& to) {
    Bytes bytes(static_cast<size_t>(elements * 4));
    MITHRIL_RETURN_IF_ERROR(from.get(0, bytes.data(), elements * 4));
    return to.put(0, bytes.data(), elements * 4);
  }

  // Reports the first element of the left matrix that is no index below the bound.
  Status report(const plan::FunctionCall& call, const Block::Place& left,
                const Block::Place& to) const {
    long m = 0, depth = 0;
    std::sscanf(call.call.c_str(), "fake_matmul(%ld, %ld", &m, &depth);
    Report found;
    const auto bytes = [&] { return reinterpret_cast<std::byte*>(&found); };
    MITHRIL_RETURN_IF_ERROR(to.get(0, bytes(), sizeof found));
    for (long i = 0; i < m * depth && found.is_there == 0; ++i) {
      float x = 0;
      MITHRIL_RETURN_IF_ERROR(left.get(i * 4, reinterpret_cast<std::byte*>(&x), 4));
      if (x < static_cast<float>(call.bound)) continue;
      found = {1, *checked_, i, static_cast<int64_t>(x)};
    }
    return to.put(0, bytes(), sizeof found);
  }

  // "fake_matmul(m, k, n, left)" of float32, in canonical order; `left`: which operand it is.
  static Status run_product(const plan::FunctionCall& call,
                            const std::vector<Block::Place>& operands) {
    long m = 0, depth = 0, n = 0;
    size_t left = 0;
    if (std::sscanf(call.call.c_str(), "fake_copy(%ld, %ld, %ld)", &m, &depth, &n) == 3) {
      return run_copy(m, operands[static_cast<size_t>(depth)], operands[static_cast<size_t>(n)]);
    }
    if (std::sscanf(call.call.c_str(), "fake_matmul(%ld, %ld, %ld, %zu)", &m, &depth, &n, &left) !=
        4) {
      return core::fail(ErrorKind::kInternal, Code::kInternal, "Fake: no function {}", call.call);
    }
    std::vector<float> a(static_cast<size_t>(m * depth)), b(static_cast<size_t>(depth * n));
    std::vector<float> c(static_cast<size_t>(m * n));
    const auto bytes = [](std::vector<float>& x) { return reinterpret_cast<std::byte*>(x.data()); };
    MITHRIL_RETURN_IF_ERROR(operands[left].get(0, bytes(a), m * depth * 4));
    MITHRIL_RETURN_IF_ERROR(operands[1].get(0, bytes(b), depth * n * 4));
    for (long i = 0; i < m; ++i) {
      for (long j = 0; j < n; ++j) {
        float& out = c[static_cast<size_t>(i * n + j)];
        for (long block = 0; block < depth; block += 256) {
          float sum = 0.0F;
          for (long p = block; p < std::min(block + 256, depth); ++p) {
            sum = std::fma(a[static_cast<size_t>(i * depth + p)], b[static_cast<size_t>(p * n + j)],
                           sum);
          }
          out = block == 0 ? sum : out + sum;
        }
      }
    }
    return operands[2].put(0, bytes(c), m * n * 4);
  }

  plan::Call call_;
  std::vector<size_t> passed_;
  std::optional<int64_t> checked_;
};

class FakeDriver::FakeProgram final : public Program {
 public:
  FakeProgram(FakeDriver& driver, const PlanCode& code) : driver_(driver) {
    count_object(1);
    add(code);
  }
  ~FakeProgram() override { count_object(-1); }

  core::Result<std::unique_ptr<Kernel>> kernel(const std::string& name) const override {
    MITHRIL_RETURN_IF_ERROR(driver_.begin("fake.kernel"));
    const auto at = kernels_.find(name);
    if (at == kernels_.end()) return failed("fake.kernel", kFails);
    return std::unique_ptr<Kernel>(std::make_unique<FakeKernel>(at->second));
  }

 private:
  void add(const PlanCode& code) {
    for (size_t at = 0; at < code.steps.size(); ++at) {
      const StepCode& step = code.steps[at];
      if (step.kind == StepCode::Kind::kLaunch) {
        const plan::PlannedStep& planned = code.plan->steps[at];
        const std::vector<plan::Call> calls = calls_of(*planned.step.call);
        for (size_t i = 0; i < step.before.size(); ++i) {
          kernels_.emplace(step.before[i].kernel, FakeKernel(calls[i], passed(step, planned)));
        }
        std::optional<int64_t> checked;
        if (step.is_checked) checked = checked_count_++;
        kernels_.emplace(step.kernel, FakeKernel(calls.back(), passed(step, planned), checked));
      }
      if (step.first != nullptr) add(*step.first);
      if (step.second != nullptr) add(*step.second);
    }
  }

  // Lists what each kernel of a step computes.
  static std::vector<plan::Call> calls_of(const plan::Call& call) {
    const auto* function = std::get_if<plan::FunctionCall>(&call);
    if (function == nullptr || function->in_phases == nullptr) return {call};
    std::vector<plan::Call> out;
    for (const plan::FunctionCall::Phase& phase : function->in_phases({})) {
      plan::FunctionCall one;
      one.call = phase.call;
      out.emplace_back(std::move(one));
    }
    return out;
  }

  // An operand that is one memory with a result is passed as that.
  static std::vector<size_t> passed(const StepCode& step, const plan::PlannedStep& planned) {
    std::vector<size_t> out;
    for (size_t k = 0; k < planned.operands.size(); ++k) {
      const plan::Address& own = planned.operands[k];
      const auto is_own = [&](size_t i) {
        const plan::Address& other = planned.operands[i];
        return other.base == own.base && other.offset == own.offset;
      };
      auto at = std::find(step.operands.begin(), step.operands.end(), k);
      if (at == step.operands.end()) {
        at = std::find_if(step.operands.begin(), step.operands.end(), is_own);
      }
      out.push_back(static_cast<size_t>(at - step.operands.begin()));
    }
    return out;
  }

  FakeDriver& driver_;
  std::map<std::string, FakeKernel> kernels_;
  int64_t checked_count_ = 0;
};

// ---------------------------------------------------------------- the driver

int64_t FakeDriver::count(const std::string& symbol) const {
  return std::count(log_.begin(), log_.end(), symbol);
}

core::Status FakeDriver::begin(const char* symbol) {
  const std::lock_guard lock(calls_mutex_);
  log_.emplace_back(symbol);
  const int status = is_lost_ ? kLost : injected(symbol);
  is_lost_ = is_lost_ || status == kLost;
  return status == 0 ? Status() : failed(symbol, status);
}

// What failed, or is behind it, never happens.
core::Status FakeDriver::run_queue() {
  Status out;
  while (!queue_.empty() && out.ok()) {
    const auto operation = std::move(queue_.front());
    queue_.pop_front();
    out = operation();
  }
  queue_.clear();
  return out;
}

PrintOptions FakeDriver::print_options() const { return {.dialect = kDialect, .is_cpu = false}; }

core::Result<MemoryPtr> FakeDriver::allocate(int64_t bytes) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.allocate"));
  return MemoryPtr(std::make_unique<const Block>(bytes));
}

core::Result<MemoryPtr> FakeDriver::constant(std::span<const std::byte> bytes) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.constant"));
  const auto size = static_cast<int64_t>(bytes.size());
  MemoryPtr out = std::make_unique<const Block>(size);
  MITHRIL_RETURN_IF_ERROR(Block::place({out.get(), 0}).put(0, bytes.data(), size));
  return out;
}

core::Result<MemoryPtr> FakeDriver::operand(const void* /*host*/, int64_t bytes,
                                            bool /*is_written*/) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.operand"));
  return MemoryPtr(std::make_unique<const Block>(bytes));
}

core::Status FakeDriver::write(Ref to, const void* host, int64_t bytes) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.write"));
  enqueue([place = Block::place(to), host, bytes] {
    return place.put(0, static_cast<const std::byte*>(host), bytes);
  });
  return {};
}

core::Status FakeDriver::read(Ref from, void* host, int64_t bytes) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.read"));
  enqueue([place = Block::place(from), host, bytes] {
    return place.get(0, static_cast<std::byte*>(host), bytes);
  });
  return {};
}

core::Result<uint8_t> FakeDriver::read_byte(Ref from) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.byte"));
  MITHRIL_RETURN_IF_ERROR(run_queue());
  std::byte out{};
  MITHRIL_RETURN_IF_ERROR(Block::place(from).get(0, &out, 1));
  return static_cast<uint8_t>(out);
}

core::Status FakeDriver::copy(Ref from, Ref to, int64_t bytes) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.copy"));
  enqueue([source = Block::place(from), target = Block::place(to), bytes]() -> Status {
    Bytes moved(static_cast<size_t>(bytes));
    MITHRIL_RETURN_IF_ERROR(source.get(0, moved.data(), bytes));
    return target.put(0, moved.data(), bytes);
  });
  return {};
}

core::Result<std::byte*> FakeDriver::map(Ref at, int64_t bytes, bool /*is_written*/) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.map"));
  MITHRIL_RETURN_IF_ERROR(run_queue());
  auto host = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
  MITHRIL_RETURN_IF_ERROR(Block::place(at).get(0, host.get(), bytes));
  count_object(1);
  return host.release();
}

core::Status FakeDriver::unmap(Ref at, int64_t bytes, bool is_written, std::byte* host) {
  const std::unique_ptr<std::byte[]> owned(host);
  count_object(-1);
  MITHRIL_RETURN_IF_ERROR(begin("fake.unmap"));
  return is_written ? Block::place(at).put(0, host, bytes) : Status();
}

core::Result<std::shared_ptr<const Program>> FakeDriver::build(const std::string& /*text*/) {
  return core::fail(ErrorKind::kUnsupported, Code::kUnsupported, "Fake: a text alone says nothing");
}

core::Result<std::shared_ptr<const Program>> FakeDriver::load(const std::string& text,
                                                              const plan::Plan& plan) {
  if (auto known = loaded(text)) return known;
  MITHRIL_RETURN_IF_ERROR(begin("fake.build"));
  MITHRIL_ASSIGN(const Source source, print_plan(plan, print_options()));
  MITHRIL_CHECK(source.text == text, "a plan is printed in two ways");
  return remember(text, std::make_shared<const FakeProgram>(*this, *source.code));
}

core::Status FakeDriver::launch(const Kernel& kernel, std::span<const Ref> operands,
                                const Launch& launch) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.launch"));
  const auto& code = static_cast<const FakeKernel&>(kernel);
  MITHRIL_CHECK(launch.items > 0 && operands.size() == code.operand_count(), "a bad launch");
  std::vector<Block::Place> places;
  for (const Ref& ref : operands) places.push_back(Block::place(ref));
  if (is_timing_) ++timed_;
  enqueue([code, places = std::move(places)] { return code.run(places); });
  return {};
}

// ---------------------------------------------------------------- command buffers

class FakeDriver::Commands final : public CommandBuffer {
 public:
  explicit Commands(Operations operations) : operations_(std::move(operations)) { count_object(1); }
  ~Commands() override { count_object(-1); }
  const Operations& operations() const { return operations_; }

 private:
  Operations operations_;
};

std::optional<Driver::Place> FakeDriver::place(const Ref& ref) const {
  return Place{0, 0, Block::place(ref).data->data() + ref.offset};
}

core::Status FakeDriver::begin_recording() {
  MITHRIL_RETURN_IF_ERROR(begin("fake.record"));
  MITHRIL_CHECK(!is_recording_, "a recording in a recording");
  is_recording_ = true;
  return {};
}

core::Result<std::unique_ptr<const CommandBuffer>> FakeDriver::end_recording() {
  is_recording_ = false;
  Operations recorded = std::exchange(recorded_, {});
  MITHRIL_RETURN_IF_ERROR(begin("fake.recorded"));
  return std::unique_ptr<const CommandBuffer>(std::make_unique<Commands>(std::move(recorded)));
}

core::Status FakeDriver::enqueue(const CommandBuffer& commands) {
  MITHRIL_RETURN_IF_ERROR(begin("fake.commands"));
  for (const auto& one : static_cast<const Commands&>(commands).operations()) enqueue(one);
  return {};
}

core::Status FakeDriver::begin_timing() {
  MITHRIL_RETURN_IF_ERROR(begin("fake.timing"));
  MITHRIL_CHECK(!is_timing_ && !is_recording_, "a timing within something else");
  is_timing_ = true;
  timed_ = 0;
  return {};
}

core::Result<int64_t> FakeDriver::end_timing() {
  is_timing_ = false;
  const Status begun = begin("fake.timed");
  if (!begun.ok()) {
    queue_.clear();
    return core::Status(begun.error());
  }
  MITHRIL_RETURN_IF_ERROR(run_queue());
  return kLaunchTime * timed_;
}

// Programs that end wait, too, without the lock, while others enqueue.
core::Status FakeDriver::finish() {
  const auto lock = this->lock();
  MITHRIL_CHECK(!is_recording_ && !is_timing_, "somebody waits within a recording");
  const Status begun = begin("fake.finish");
  if (begun.ok()) return run_queue();
  queue_.clear();
  return core::Status(begun.error());
}

}  // namespace mithril::device::test
