#include "tile/reduction.h"

#include <limits>

#include "tile/convert.h"

namespace mithril::tile {

Opcode combining(Opcode reduction) {
  switch (reduction) {
    case Opcode::kReduceSum: return Opcode::kAdd;
    case Opcode::kReduceProd: return Opcode::kMul;
    case Opcode::kReduceMax: return Opcode::kMax;
    case Opcode::kReduceMin: return Opcode::kMin;
    case Opcode::kReduceAny: return Opcode::kOr;
    default: return Opcode::kAnd;
  }
}

uint64_t identity_of(Opcode reduction, core::DType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Opcode::kReduceMax: return bits_of_double(dtype, -inf);
    case Opcode::kReduceMin: return bits_of_double(dtype, inf);
    case Opcode::kReduceProd:
    case Opcode::kReduceAll: return bits_of_int(dtype, 1);
    default: return 0;
  }
}

}  // namespace mithril::tile
