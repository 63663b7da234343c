// A stand-in for libcuda: memory of the "device" is of the host, and kernels run thread by thread.
// A test double, no part of mithril. What a stream is given waits until somebody waits for it, so
// that memory which is given back too early is found; calls without a context, pointers of nobody
// and copies beyond an allocation are refused.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <elf.h>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace {

enum Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalid = 901,
};
struct Name {
  int status;
  const char* text;
};
constexpr Name kNames[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
                           {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                           {3, "CUDA_ERROR_NOT_INITIALIZED"},
                           {100, "CUDA_ERROR_NO_DEVICE"},
                           {101, "CUDA_ERROR_INVALID_DEVICE"},
                           {200, "CUDA_ERROR_INVALID_IMAGE"},
                           {201, "CUDA_ERROR_INVALID_CONTEXT"},
                           {400, "CUDA_ERROR_INVALID_HANDLE"},
                           {500, "CUDA_ERROR_NOT_FOUND"},
                           {600, "CUDA_ERROR_NOT_READY"},
                           {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                           {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                           {719, "CUDA_ERROR_LAUNCH_FAILED"},
                           {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                           {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};

/// The second device knows no pools, the third one no products of tiles.
constexpr int kArchitectures[] = {80, 86, 75};
constexpr int kDevices = std::size(kArchitectures);
constexpr size_t kMemory = size_t{1} << 30;

struct Context {
  int device = 0, retained = 0;
};
/// What a stream was given while it was captured.
struct Graph {
  std::vector<std::function<void()>> nodes;
};
struct Stream {
  std::deque<std::function<void()>> waiting;
  std::unique_ptr<Graph> captured;  // null: what it is given is done
  bool is_invalid = false;          // it was asked for what cannot be captured

  void give(std::function<void()> one) {
    if (captured != nullptr) {
      captured->nodes.push_back(std::move(one));
    } else {
      waiting.push_back(std::move(one));
    }
  }
};
/// A place in a stream, and when the stream came there, by the host's clock.
struct Mark {
  Stream* stream = nullptr;
  bool is_reached = false;
  double milliseconds = 0;
};
struct Event {
  bool has_time = true;
  std::shared_ptr<Mark> mark;  // null: never recorded
};
struct Module {
  void* library = nullptr;
  int file = -1;
};
struct Pool {};

std::recursive_mutex mutex;  // one call at a time
bool is_initialized = false;
Context contexts[kDevices];
thread_local std::vector<Context*> current;
std::map<uintptr_t, size_t> allocations;
std::set<Stream*> streams;
Stream legacy, per_thread;           // those that everybody has, by the handles 1 and 2
std::map<uintptr_t, size_t> pinned;  // memory of the host
size_t allocated = 0;

using Lock = std::lock_guard<std::recursive_mutex>;

bool has_context() { return !current.empty() && current.back() != nullptr; }

void run_one(Stream& stream) {
  auto one = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  one();
}

void run_all(Stream& stream) {
  while (!stream.waiting.empty()) run_one(stream);
}

Stream* stream_of(Stream* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  return number == 1 ? &legacy : number == 2 ? &per_thread : handle;
}
bool is_stream(Stream* stream) {
  return stream == &legacy || stream == &per_thread || streams.count(stream) != 0;
}

// Whether `size` bytes from there on are of one allocation.
bool is_ours(uint64_t at, size_t size) {
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return false;
  --next;
  return at - next->first <= next->second && size <= next->second - (at - next->first);
}

bool is_pinned(const void* from, size_t size) {
  const auto at = reinterpret_cast<uintptr_t>(from);
  auto next = pinned.upper_bound(at);
  if (next == pinned.begin()) return false;
  --next;
  return at - next->first + size <= next->second;
}

int allocate(uint64_t* to, size_t size) {
  if (size == 0) return kInvalidValue;
  if (allocated + size > kMemory) return kOutOfMemory;
  void* const memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0xFF, size);  // NaN: nothing may be read before it is written
  allocations[reinterpret_cast<uintptr_t>(memory)] = size;
  allocated += size;
  *to = reinterpret_cast<uint64_t>(memory);
  return kSuccess;
}

int release(uint64_t pointer) {
  const auto at = allocations.find(pointer);
  if (at == allocations.end()) return kInvalidValue;
  allocated -= at->second;
  allocations.erase(at);
  std::free(reinterpret_cast<void*>(pointer));
  return kSuccess;
}

void* host(uint64_t pointer) { return reinterpret_cast<void*>(pointer); }

// ---------------------------------------------------------------- threads as fibres

struct Dim {
  unsigned x, y, z;
};
struct Lane {  // emulated_lane of kernel.h
  unsigned words[6];
  float results[4];
  const unsigned short* row;
};
struct Launch {  // emulated_launch of kernel.h
  Dim thread, block, block_size, grid;
  void (*meet)();
  void (*meet_warp)();
  void (*fail)(const char* why);
  Lane* warp;
};

#ifndef __x86_64__
#error "the emulator switches fibres of x86-64 only"
#endif
extern "C" void emulated_switch(void** save, void* to);
asm(R"(
.globl emulated_switch
emulated_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi); movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret
)");

constexpr size_t kStack = 256 << 10;

struct Stack {
  std::byte* memory;
  Stack()
      : memory(static_cast<std::byte*>(mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  Stack(Stack&& other) noexcept : memory(std::exchange(other.memory, nullptr)) {}
  ~Stack() {
    if (memory != nullptr) munmap(memory, kStack);
  }
};

// The block that runs. The threads of a warp go from one of its meetings to the next in turn, until
// all wait for the block; these go on when all do. A thread that meets nobody leaves its stack to
// the next one.
struct Fibre {
  void* stack_pointer = nullptr;
  size_t stack = 0;
  unsigned thread = 0;
  bool waits_for_warp = false;  // else for the block
};
constexpr unsigned kWarp = 32;
struct Warp {
  std::array<Lane, kWarp> lanes;
  std::vector<Fibre> fibres;  // that have not ended
};
Launch launch;
std::function<void()> body;
void* scheduler = nullptr;
Fibre* running = nullptr;
bool has_ended = false;
std::vector<Stack> stacks;
bool has_failed = false;  // a kernel, since somebody last waited

void fail(const char* why) {
  if (!has_failed) std::fprintf(stderr, "emulated CUDA: %s\n", why);
  has_failed = true;
}

void meet(bool of_warp) {
  running->waits_for_warp = of_warp;
  emulated_switch(&running->stack_pointer, scheduler);
}
void meet_block() { meet(false); }
void meet_warp() { meet(true); }
void enter() {
  body();
  has_ended = true;
  meet_block();
  __builtin_unreachable();
}

void start(Fibre& fibre) {
  if (fibre.stack >= stacks.size()) stacks.emplace_back();
  auto** top = reinterpret_cast<void**>(stacks[fibre.stack].memory + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&enter);
  top -= 6;
  std::memset(top, 0, 6 * sizeof(void*));
  fibre.stack_pointer = top;
}

bool run_to_meeting(Fibre& fibre, Warp& warp) {
  running = &fibre;
  has_ended = false;
  launch.thread = {fibre.thread, 0, 0};
  launch.warp = warp.lanes.data();
  emulated_switch(&scheduler, fibre.stack_pointer);
  return !has_ended;
}

void go_on(Warp& warp) {
  std::vector<Fibre> next;
  for (Fibre& fibre : warp.fibres) {
    if (run_to_meeting(fibre, warp)) next.push_back(fibre);
  }
  warp.fibres = std::move(next);
}

size_t waiting_for_warp(const Warp& warp) {
  return std::count_if(warp.fibres.begin(), warp.fibres.end(),
                       [](const Fibre& fibre) { return fibre.waits_for_warp; });
}

void run_block(unsigned threads) {
  std::vector<Warp> warps((threads + kWarp - 1) / kWarp);
  size_t alive = 0;
  for (unsigned t = 0; t < threads; ++t) {
    Warp& warp = warps[t / kWarp];
    Fibre fibre{nullptr, alive, t};
    start(fibre);
    warp.fibres.push_back(fibre);
    if (run_to_meeting(warp.fibres.back(), warp)) {
      ++alive;
    } else {
      warp.fibres.pop_back();
    }
  }
  while (alive > 0) {
    alive = 0;
    for (Warp& warp : warps) {
      while (waiting_for_warp(warp) == kWarp) go_on(warp);
      if (waiting_for_warp(warp) > 0) return fail("a warp waits for threads that do not come");
    }
    for (Warp& warp : warps) {
      go_on(warp);
      alive += warp.fibres.size();
    }
  }
}

// ---------------------------------------------------------------- modules

struct Function {
  void (*call)(const uint64_t* parameters);  // that kernel.h makes
  int parameters;
  Launch** seen;
};

// An image of ELF says how long it is.
size_t size_of_image(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
}

void run(const Function& function, const std::vector<uint64_t>& parameters, Dim grid, Dim block) {
  body = [&] { function.call(parameters.data()); };
  *function.seen = &launch;
  launch.grid = grid;
  launch.block_size = block;
  launch.meet = meet_block;
  launch.meet_warp = meet_warp;
  launch.fail = fail;
  for (unsigned b = 0; b < grid.x; ++b) {
    launch.block = {b, 0, 0};
    run_block(block.x);
  }
}

std::map<void*, std::vector<std::unique_ptr<Function>>> functions;  // by library

// Launches and copies on the device can be captured, and nothing else.
bool is_captured(Stream* stream) {
  if (stream->captured == nullptr) return false;
  stream->is_invalid = true;
  return true;
}

}  // namespace

#define EMULATED(...)                          \
  const Lock lock(mutex);                      \
  if (!is_initialized) return kNotInitialized; \
  if (!(__VA_ARGS__)) return kInvalidContext

extern "C" {

// For the emulated cuBLASLt and cuDNN.
bool emulated_has_context() {
  const Lock lock(mutex);
  return has_context();
}
bool emulated_is_ours(uint64_t at, size_t size) {
  const Lock lock(mutex);
  return is_ours(at, size);
}
void emulated_give(Stream* stream, const std::function<void()>* one) {
  const Lock lock(mutex);
  stream->give(*one);
}

int cuInit(unsigned flags) {
  const Lock lock(mutex);
  if (flags != 0) return kInvalidValue;
  is_initialized = true;
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = 12080;
  return kSuccess;
}
int cuGetErrorName(int status, const char** text) {
  for (const Name& name : kNames) {
    if (name.status != status) continue;
    *text = name.text;
    return kSuccess;
  }
  return kInvalidValue;
}
int cuDeviceGetCount(int* count) {
  EMULATED(true);
  *count = kDevices;
  return kSuccess;
}
int cuDeviceGet(int* device, int index) {
  EMULATED(true);
  if (index < 0 || index >= kDevices) return kInvalidDevice;
  *device = index;
  return kSuccess;
}
int cuDeviceGetName(char* to, int size, int device) {
  EMULATED(true);
  std::string name = "Emulated CUDA device " + std::to_string(device);
  name.resize(std::min(name.size(), static_cast<size_t>(size - 1)));
  std::strcpy(to, name.c_str());
  return kSuccess;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  EMULATED(true);
  *bytes = kMemory;
  return kSuccess;
}
// EMULATED_CUDA_ARCHITECTURE=75: the first device is older.
int cuDeviceGetAttribute(int* value, int which, int device) {
  EMULATED(true);
  const char* const chosen = std::getenv("EMULATED_CUDA_ARCHITECTURE");
  const int architecture =
      device == 0 && chosen != nullptr ? std::atoi(chosen) : kArchitectures[device];
  switch (which) {
    case 16: *value = 4; return kSuccess;
    case 75: *value = architecture / 10; return kSuccess;
    case 76: *value = architecture % 10; return kSuccess;
    case 115: *value = device == 1 ? 0 : 1; return kSuccess;
    default: return kInvalidValue;
  }
}
int cuDevicePrimaryCtxRetain(Context** context, int device) {
  EMULATED(true);
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  contexts[device].device = device;
  ++contexts[device].retained;
  *context = &contexts[device];
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  EMULATED(true);
  if (contexts[device].retained == 0) return kInvalidContext;
  --contexts[device].retained;
  return kSuccess;
}
int cuCtxPushCurrent_v2(Context* context) {
  EMULATED(context != nullptr && context->retained > 0);
  current.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(Context** context) {
  EMULATED(has_context());
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
int cuStreamCreate(Stream** stream, unsigned) {
  EMULATED(has_context());
  *stream = new Stream();
  streams.insert(*stream);
  return kSuccess;
}
int cuStreamDestroy_v2(Stream* stream) {
  EMULATED(has_context());
  run_all(*stream);
  streams.erase(stream);
  delete stream;
  return kSuccess;
}
int cuStreamSynchronize(Stream* handle) {
  EMULATED(has_context());
  Stream* const stream = stream_of(handle);
  if (is_captured(stream)) return kCaptureUnsupported;
  run_all(*stream);
  return std::exchange(has_failed, false) ? kLaunchFailed : kSuccess;
}
int cuCtxSynchronize() {
  EMULATED(has_context());
  for (Stream* const stream : streams) {
    if (is_captured(stream)) return kCaptureUnsupported;
  }
  for (Stream* const stream : {&legacy, &per_thread}) run_all(*stream);
  for (Stream* const stream : streams) run_all(*stream);
  return std::exchange(has_failed, false) ? kLaunchFailed : kSuccess;
}
int cuEventCreate(Event** event, unsigned flags) {
  EMULATED(has_context());
  constexpr unsigned kWithoutTiming = 2;
  if (flags != 0 && flags != kWithoutTiming) return kInvalidValue;
  *event = new Event{flags == 0, nullptr};
  return kSuccess;
}
int cuEventDestroy_v2(Event* event) {
  EMULATED(has_context());
  delete event;
  return kSuccess;
}
int cuEventRecord(Event* event, Stream* handle) {
  EMULATED(has_context());
  Stream* const stream = stream_of(handle);
  if (event == nullptr || !is_stream(stream)) return kInvalidHandle;
  if (is_captured(stream)) return kCaptureUnsupported;
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  event->mark = mark;
  stream->give([mark] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    mark->milliseconds = std::chrono::duration<double, std::milli>(now).count();
    mark->is_reached = true;
  });
  return kSuccess;
}
int cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  EMULATED(has_context());
  for (const Event* const event : {start, end}) {
    if (event == nullptr || !event->has_time || event->mark == nullptr) return kInvalidHandle;
    if (!event->mark->is_reached) return kNotReady;
  }
  *milliseconds = static_cast<float>(end->mark->milliseconds - start->mark->milliseconds);
  return kSuccess;
}
int cuStreamWaitEvent(Stream* handle, Event* event, unsigned flags) {
  EMULATED(has_context());
  Stream* const stream = stream_of(handle);
  if (event == nullptr || !is_stream(stream)) return kInvalidHandle;
  if (flags != 0) return kInvalidValue;
  if (is_captured(stream)) return kCaptureUnsupported;
  if (event->mark == nullptr) return kSuccess;
  stream->give([mark = event->mark] {
    while (!mark->is_reached && !mark->stream->waiting.empty()) run_one(*mark->stream);
  });
  return kSuccess;
}
int cuMemAlloc_v2(uint64_t* pointer, size_t size) {
  EMULATED(has_context());
  return allocate(pointer, size);
}
int cuMemFree_v2(uint64_t pointer) {
  EMULATED(has_context());
  return release(pointer);
}
int cuMemPoolCreate(Pool** pool, const void* properties) {
  EMULATED(has_context());
  struct {
    int allocation_type, handle_types, location_type, location;
  } first;
  std::memcpy(&first, properties, sizeof first);
  if (first.allocation_type != 1 || first.location_type != 1) return kInvalidValue;
  *pool = new Pool();
  return kSuccess;
}
int cuMemPoolDestroy(Pool* pool) {
  EMULATED(has_context());
  delete pool;
  return kSuccess;
}
int cuMemPoolSetAttribute(Pool* pool, int which, void* value) {
  EMULATED(has_context());
  return pool != nullptr && which == 4 && value != nullptr ? kSuccess : kInvalidValue;
}
int cuMemAllocFromPoolAsync(uint64_t* pointer, size_t size, Pool* pool, Stream* stream) {
  EMULATED(has_context());
  if (pool == nullptr || stream == nullptr) return kInvalidHandle;
  if (is_captured(stream)) return kCaptureUnsupported;
  if (allocated + size > kMemory) run_all(*stream);  // what was given back waits there
  return allocate(pointer, size);
}
int cuMemFreeAsync(uint64_t pointer, Stream* stream) {
  EMULATED(has_context());
  if (allocations.count(pointer) == 0) return kInvalidValue;
  if (is_captured(stream)) return kCaptureUnsupported;
  stream->waiting.push_back([pointer] { release(pointer); });
  return kSuccess;
}
int cuMemHostAlloc(void** pointer, size_t size, unsigned flags) {
  EMULATED(has_context());
  if (flags != 0 || size == 0) return kInvalidValue;
  *pointer = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (*pointer == nullptr) return kOutOfMemory;
  pinned[reinterpret_cast<uintptr_t>(*pointer)] = size;
  return kSuccess;
}
// Memory that is pinned is read when the stream comes to it, other memory before the call returns.
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, Stream* stream) {
  EMULATED(has_context());
  if (!is_ours(to, size)) return kInvalidValue;
  if (is_captured(stream)) return kCaptureUnsupported;
  const auto* const bytes = static_cast<const std::byte*>(from);
  if (is_pinned(from, size)) {
    stream->waiting.push_back([=] { std::memcpy(host(to), from, size); });
    return kSuccess;
  }
  stream->waiting.push_back([to, copy = std::vector<std::byte>(bytes, bytes + size)] {
    std::memcpy(host(to), copy.data(), copy.size());
  });
  return kSuccess;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, Stream* stream) {
  EMULATED(has_context());
  if (!is_ours(from, size)) return kInvalidValue;
  if (is_captured(stream)) return kCaptureUnsupported;
  stream->waiting.push_back([=] { std::memcpy(to, host(from), size); });
  return kSuccess;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, Stream* stream) {
  EMULATED(has_context());
  if (!is_ours(from, size) || !is_ours(to, size)) return kInvalidValue;
  stream->give([=] { std::memmove(host(to), host(from), size); });
  return kSuccess;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, Stream* stream) {
  EMULATED(has_context());
  if (!is_ours(to, size)) return kInvalidValue;
  stream->give([=] { std::memset(host(to), value, size); });
  return kSuccess;
}
int cuModuleLoadData(Module** module, const void* image) {
  EMULATED(has_context());
  const size_t size = size_of_image(image);
  if (size == 0) return kInvalidImage;
  // The file stays open as long as the module: its number is the library's name.
  auto out = std::make_unique<Module>();
  out->file = memfd_create("emulated-cuda", MFD_CLOEXEC);
  if (out->file < 0 || write(out->file, image, size) != static_cast<ssize_t>(size)) {
    return kInvalidImage;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(out->file);
  out->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (out->library == nullptr) {
    close(out->file);
    return kInvalidImage;
  }
  *module = out.release();
  return kSuccess;
}
int cuModuleUnload(Module* module) {
  EMULATED(has_context());
  functions.erase(module->library);
  dlclose(module->library);
  close(module->file);
  delete module;
  return kSuccess;
}
int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  EMULATED(has_context());
  void* const call = dlsym(module->library, ("emulated_call_" + std::string(name)).c_str());
  const void* const count =
      dlsym(module->library, ("emulated_parameters_" + std::string(name)).c_str());
  void* const seen = dlsym(module->library, "emulated_cuda");
  if (call == nullptr || count == nullptr || seen == nullptr) return kNotFound;
  auto out = std::make_unique<Function>(Function{reinterpret_cast<void (*)(const uint64_t*)>(call),
                                                 *static_cast<const int*>(count),
                                                 static_cast<Launch**>(seen)});
  *function = out.get();
  functions[module->library].push_back(std::move(out));
  return kSuccess;
}
int cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   Stream* stream, void** parameters, void** extra) {
  EMULATED(has_context());
  const bool fits = grid_x > 0 && grid_x < 1U << 31 && block_x > 0 && block_x <= 1024;
  const bool is_flat = grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1;
  if (function == nullptr || !fits || !is_flat || shared != 0 || extra != nullptr) {
    return kInvalidValue;
  }
  std::vector<uint64_t> values;  // all of them have 8 bytes
  for (int i = 0; i < function->parameters; ++i) {
    values.emplace_back();
    std::memcpy(&values.back(), parameters[i], sizeof(uint64_t));
  }
  stream->give([=, copy = *function] { run(copy, values, {grid_x, 1, 1}, {block_x, 1, 1}); });
  return kSuccess;
}
int cuStreamBeginCapture_v2(Stream* stream, int mode) {
  EMULATED(has_context());
  if (mode < 0 || mode > 2 || stream->captured != nullptr) return kInvalidValue;
  stream->captured = std::make_unique<Graph>();
  stream->is_invalid = false;
  return kSuccess;
}
int cuStreamEndCapture(Stream* stream, Graph** graph) {
  EMULATED(has_context());
  if (stream->captured == nullptr) return kInvalidValue;
  std::unique_ptr<Graph> captured = std::move(stream->captured);
  *graph = nullptr;
  if (stream->is_invalid) return kCaptureInvalid;
  *graph = captured.release();
  return kSuccess;
}
int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long flags) {
  EMULATED(has_context());
  if (graph == nullptr || flags != 0) return kInvalidValue;
  *executable = new Graph(*graph);
  return kSuccess;
}
int cuGraphLaunch(Graph* executable, Stream* stream) {
  EMULATED(has_context());
  if (executable == nullptr || is_captured(stream)) return kInvalidValue;
  for (const auto& node : executable->nodes) stream->give(node);
  return kSuccess;
}
int cuGraphDestroy(Graph* graph) {
  EMULATED(has_context());
  delete graph;
  return kSuccess;
}
int cuGraphExecDestroy(Graph* executable) {
  EMULATED(has_context());
  delete executable;
  return kSuccess;
}
}
