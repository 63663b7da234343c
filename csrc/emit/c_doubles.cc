#include "emit/c_doubles.h"

#include <algorithm>

#include "tile/convert.h"
#include "tile/expand.h"

namespace mithril::emit {

using core::DType;
using tile::Opcode;

bool uses_doubles(const tile::Program& program) {
  const tile::Program expanded = tile::expand(program);
  const auto is_double = [](DType dtype) { return dtype == DType::kFloat64; };
  if (std::any_of(expanded.inputs.begin(), expanded.inputs.end(), is_double) ||
      std::any_of(expanded.outputs.begin(), expanded.outputs.end(), is_double)) {
    return true;
  }
  return std::any_of(expanded.code.begin(), expanded.code.end(), [&](const auto& i) {
    const bool is_sum = i.opcode == Opcode::kCumSum && i.dtype == DType::kFloat32;
    if (is_double(i.dtype) || is_sum) return true;
    if (i.opcode != Opcode::kCast || !tile::is_half(i.dtype)) return false;
    const DType from = expanded.code[i.operands[0]].dtype;
    return !core::is_float(from) && core::size_of(from) >= 4;
  });
}

std::string without_doubles(std::string_view head) {
  std::string out(head);
  constexpr std::string_view kExtension = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
  const size_t at = out.find(kExtension);
  if (at != std::string::npos) out.erase(at, kExtension.size());
  return out;
}

}  // namespace mithril::emit
