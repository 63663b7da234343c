// The header of a safetensors file: names, dtypes, shapes and places of its tensors, checked.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

namespace mithril::core {

struct TensorPlace {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes after the header
};

/// The header's JSON text. Fails (kParse) unless the tensors have different names, fill
/// `data_size` bytes without hole or overlap, and have dtypes that this library has. In the order
/// of their places. `__metadata__` is skipped.
Result<std::vector<TensorPlace>> read_safetensors(std::string_view header, int64_t data_size);

/// "F32", "BF16", "BOOL" …: what the format calls a concrete dtype.
std::string_view safetensors_name(DType dtype);

}  // namespace mithril::core
