#include "backends/c/load.h"

#include <dlfcn.h>
#include <thread>
#include <unistd.h>

#include "core/interrupt.h"
#include "plan/cost.h"

namespace mithril::c {
namespace {

using plan::BufferSpec;
using plan::KernelArgs;
using plan::KernelStatus;
using plan::Plan;

/// NAME_context of the text (emit/c_plan.cc).
struct Context {
  int (*stops)(void*);
  void* stops_data;
  int step, what;
  int64_t position, value, bound;
};
using Entry = int (*)(const void* const*, void* const*, const void* const*, void*, Context*);

const pid_t kProcess = getpid();

struct Loaded {
  std::shared_ptr<void> object;
  Entry entry = nullptr;
  size_t inputs = 0, outputs = 0;
  bool has_threads = false;
  std::vector<std::shared_ptr<const core::TensorData>> data;
  std::vector<const void*> constants;
};

// In a forked child the threads of OpenMP are gone, and one that had them waits for them forever:
// another thread has none yet.
template <class Call>
int with_own_threads(bool has_threads, const Call& call) {
  if (!has_threads || getpid() == kProcess) return call();
  int status = 0;
  std::thread([&] { status = call(); }).join();
  return status;
}

KernelStatus run_loaded(const KernelArgs& args, int64_t, int64_t) {
  const auto& loaded = *static_cast<const Loaded*>(args.data);
  Context context{[](void*) { return core::is_interrupted() ? 1 : 0; }, nullptr, -1, 0, 0, 0, 0};
  void* const* const outputs = args.buffers + loaded.inputs;
  const int status = with_own_threads(loaded.has_threads, [&] {
    return loaded.entry(args.buffers, outputs, loaded.constants.data(), outputs[loaded.outputs],
                        &context);
  });
  if (status != 1) return status == 0 ? KernelStatus::kOk : KernelStatus::kCancelled;
  args.error->report(0, context.position, context.value, context.bound);
  args.error->what = static_cast<plan::BadData>(context.what);
  args.error->step = context.step;
  return KernelStatus::kBadData;
}

// Threads of OpenMP stay in its code until the process ends: so must that, when the last object
// that uses it is closed.
void keep_openmp(void* object) {
  Dl_info found;
  void* const function = dlsym(object, "omp_get_thread_num");
  if (function != nullptr && dladdr(function, &found) != 0) {
    dlopen(found.dli_fname, RTLD_NOW | RTLD_NODELETE);
  }
}

core::Result<std::shared_ptr<void>> opened(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return core::fail(core::ErrorKind::kDevice, core::Code::kDevice,
                      "the compiled plan cannot be loaded: {}", why == nullptr ? "no reason" : why);
  }
  keep_openmp(handle);
  return std::shared_ptr<void>(handle, [](void* object) { dlclose(object); });
}

/// A plan whose one step reads all inputs, writes all outputs and has the arena to itself.
class Wrapper {
 public:
  Wrapper(const Plan& plan, const emit::CPlan& printed) : plan_(plan) {
    out_.input_count = plan.input_count;
    out_.output_count = plan.output_count;
    out_.donations = plan.donations;
    out_.arena_bytes = printed.arena_bytes;
  }

  Plan run(plan::Step step) {
    out_.steps.push_back({std::move(step), {}});
    for (int32_t i = 0; i < plan_.input_count; ++i) {
      add(BufferSpec::Kind::kInput, i, {out_.input_base(i), 0},
          bytes_of(BufferSpec::Kind::kInput, i));
    }
    for (int32_t i = 0; i < plan_.output_count; ++i) {
      add(BufferSpec::Kind::kOutput, i, {out_.output_base(i), 0},
          bytes_of(BufferSpec::Kind::kOutput, i));
    }
    add(BufferSpec::Kind::kTemporary, 0, {Plan::kArena, 0}, out_.arena_bytes);
    return std::move(out_);
  }

 private:
  int64_t bytes_of(BufferSpec::Kind kind, int32_t index) const {
    for (const BufferSpec& buffer : plan_.buffers) {
      if (buffer.kind == kind && buffer.index == index) return buffer.bytes;
    }
    return 0;
  }

  void add(BufferSpec::Kind kind, int32_t index, plan::Address address, int64_t bytes) {
    BufferSpec buffer;
    buffer.kind = kind;
    buffer.index = index;
    buffer.bytes = bytes;
    out_.buffers.push_back(std::move(buffer));
    const auto id = static_cast<plan::BufferId>(out_.buffers.size()) - 1;
    out_.steps.back().step.operands.push_back({id, 0, kind != BufferSpec::Kind::kInput});
    out_.steps.back().operands.push_back(address);
  }

  const Plan& plan_;
  Plan out_;
};

}  // namespace

core::Result<Plan> load(const std::string& path, const emit::CPlanOptions& options,
                        emit::CPlan printed, const Plan& plan) {
  auto loaded = std::make_shared<Loaded>();
  MITHRIL_ASSIGN(loaded->object, opened(path));
  const std::string symbol = options.name + "_run";
  loaded->entry = reinterpret_cast<Entry>(dlsym(loaded->object.get(), symbol.c_str()));
  if (loaded->entry == nullptr) {
    return core::fail(core::ErrorKind::kDevice, core::Code::kDevice,
                      "the compiled plan has no function {}", symbol);
  }
  loaded->has_threads = options.threads > 1;
  loaded->inputs = static_cast<size_t>(plan.input_count);
  loaded->outputs = static_cast<size_t>(plan.output_count);
  for (const auto& constant : printed.constants) {
    loaded->constants.push_back(constant->bytes.data());
  }
  loaded->data = std::move(printed.constants);
  plan::Step step;
  step.kernel = run_loaded;
  step.label = "c";
  for (const plan::PlannedStep& planned : plan.steps) {
    step.nanoseconds += plan::nanoseconds_of(plan, planned.step);
  }
  Wrapper wrapper(plan, printed);
  step.parts = std::move(printed.parts);
  step.data = std::move(loaded);
  return wrapper.run(std::move(step));
}

}  // namespace mithril::c
