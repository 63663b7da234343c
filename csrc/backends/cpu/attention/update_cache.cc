// Appends to caches. Where the cache itself is handed in as the result, only the new places are
// written.
#include <cstring>
#include <limits>

#include "backends/cpu/reference/kernel_families.h"
#include "select/views.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

// Operands of the op, and where the kernel finds them.
enum : size_t { kCache, kInput, kOffset };

/// Places of `width` numbers: each unit has `room` of them in the cache and gets `count` new ones.
struct Append {
  std::vector<int64_t> batch, batch_steps;  // of the input
  int64_t room = 0, count = 0, width = 0;
  int64_t row_step = 0, col_step = 0;  // of the input
  int64_t offset = 0;
  bool offset_is_operand = false, offset_is_wide = false;

  int64_t first_place(const KernelArgs& args) const {
    if (!offset_is_operand) return offset;
    const void* at = args.buffers[kOffset];
    return offset_is_wide ? *static_cast<const int64_t*>(at)
                          : int64_t{*static_cast<const int32_t*>(at)};
  }
  int64_t input_offset(int64_t unit) const {
    int64_t out = 0;
    for (size_t i = batch.size(); i-- > 0; unit /= batch[i])
      out += unit % batch[i] * batch_steps[i];
    return out;
  }
};

template <class T>
void append(const Append& a, const T* from, T* to) {
  for (int64_t place = 0; place < a.count; ++place, from += a.row_step, to += a.width) {
    if (a.col_step == 1) {
      std::copy_n(from, a.width, to);
    } else {
      for (int64_t i = 0; i < a.width; ++i) to[i] = from[i * a.col_step];
    }
  }
}

template <class T>
KernelStatus run_append(const KernelArgs& args, int64_t begin, int64_t end) {
  const Append& a = *static_cast<const Append*>(args.data);
  const int64_t size = a.room * a.width, first = a.first_place(args);
  const bool fits = a.count == 0 || (first >= 0 && first <= a.room - a.count);
  const T* const cache = static_cast<const T*>(args.buffers[kCache]);
  T* const out = static_cast<T*>(args.buffers[a.offset_is_operand ? kOffset + 1 : kOffset]);
  for (int64_t unit = begin; unit < end; ++unit) {
    T* const to = out + unit * size;
    if (!fits) {
      std::fill_n(to, size, std::numeric_limits<T>::quiet_NaN());
      continue;
    }
    if (out != cache) std::copy_n(cache + unit * size, size, to);
    append(a, static_cast<const T*>(args.buffers[kInput]) + a.input_offset(unit),
           to + first * a.width);
  }
  return KernelStatus::kOk;
}

core::Result<plan::Step> make_append(const KernelRequest& request) {
  const Operand &cache = request.inputs[kCache], &input = request.inputs[kInput];
  auto append = std::make_shared<Append>();
  append->batch.assign(input.shape.begin(), input.shape.end() - 2);
  append->batch_steps.assign(input.strides.begin(), input.strides.end() - 2);
  append->room = cache.shape[cache.shape.size() - 2];
  append->count = input.shape[input.shape.size() - 2];
  append->width = input.shape.back();
  append->row_step = input.strides[input.strides.size() - 2];
  append->col_step = input.strides.back();
  append->offset_is_operand = request.inputs[kOffset].present();
  append->offset_is_wide = request.inputs[kOffset].dtype == DType::kInt64;
  const core::HostValue* offset = request.node.attrs.find("offset");
  append->offset = offset == nullptr || !offset->is_int() ? 0 : offset->as_int();
  plan::Step step;
  step.kernel = cache.dtype == DType::kFloat32 ? run_append<float> : run_append<double>;
  step.units = 1;
  for (const int64_t size : append->batch) step.units *= size;
  step.grain = grain_of(append->room * append->width / 8);
  step.inplace = {{0, kCache}};
  step.partial_update = true;
  step.data = std::move(append);
  return step;
}

// The cache lies in order: it is copied as it is.
bool fits(const KernelRequest& request) {
  const Operand &cache = request.inputs[kCache], &input = request.inputs[kInput];
  const DType offset = request.inputs[kOffset].dtype;
  const bool offset_fits =
      !request.inputs[kOffset].present() || offset == DType::kInt32 || offset == DType::kInt64;
  return has_real_type(request) && input.dtype == cache.dtype && offset_fits &&
         select::is_contiguous(cache.shape, cache.strides);
}

constexpr select::Condition kFits(fits, "float32 or float64 of both, and a cache in order");
const select::KernelDef kKernels[] = {
    {"update_cache", "update_cache", select::OrderClass::kCanonical, false, kFits, make_append},
};

}  // namespace

std::span<const select::KernelDef> cache_kernels() { return kKernels; }

}  // namespace mithril::cpu
