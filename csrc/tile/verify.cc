// The rules of well-formed programs.
#include <algorithm>

#include <fmt/format.h>

#include "tile/program.h"
#include "tile/tables.h"

namespace mithril::tile {
namespace {

using core::DType;

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  core::Status run() {
    for (at_ = 0; at_ < program_.code.size(); ++at_) {
      const Instruction& i = program_.code[at_];
      MITHRIL_RETURN_IF_ERROR(check_operands(i));
      MITHRIL_RETURN_IF_ERROR(check_types(i));
      MITHRIL_RETURN_IF_ERROR(check_level(i));
      MITHRIL_RETURN_IF_ERROR(check_index(i));
    }
    return check_outputs();
  }

 private:
  template <class... Args>
  core::Status bad(fmt::format_string<Args...> format, Args&&... args) const {
    return core::fail(core::ErrorKind::kInternal, core::Code::kInternal, "tile program: %{} {}: {}",
                      at_,
                      at_ < program_.code.size() ? info(program_.code[at_].opcode).text : "end",
                      fmt::format(format, std::forward<Args>(args)...));
  }

  const Instruction& operand(const Instruction& i, int k) const {
    return program_.code[i.operands[static_cast<size_t>(k)]];
  }

  core::Status check_operands(const Instruction& i) const {
    const int arity = info(i.opcode).arity;
    for (int k = 0; k < 3; ++k) {
      const RegId id = i.operands[static_cast<size_t>(k)];
      if (k >= arity && id != kNoReg) return bad("takes {} operands", arity);
      if (k < arity && id >= at_) return bad("operand {} is not defined before", k);
      if (k < arity && operand(i, k).opcode == Opcode::kStore) return bad("operand is a store");
    }
    return {};
  }

  core::Status check_types(const Instruction& i) const {
    const OpcodeInfo& op = info(i.opcode);
    if (core::is_abstract(i.dtype)) return bad("type must be concrete");
    const int first = op.rule == Rule::kSelect ? 1 : 0;
    for (int k = first; k < op.arity; ++k) {
      const DType dtype = operand(i, k).dtype;
      if (!accepts(op.domain, dtype)) return bad("does not take {}", core::short_name(dtype));
      if (op.rule != Rule::kThreefry && dtype != operand(i, first).dtype) {
        return bad("operands must have one type, got {} and {}",
                   core::short_name(operand(i, first).dtype), core::short_name(dtype));
      }
    }
    return check_result(i, op, first);
  }

  core::Status check_result(const Instruction& i, const OpcodeInfo& op, int first) const {
    const auto expect = [&](DType dtype) -> core::Status {
      if (i.dtype == dtype) return {};
      return bad("result must be {}, got {}", core::short_name(dtype), core::short_name(i.dtype));
    };
    switch (op.rule) {
      case Rule::kLeaf: return check_leaf(i);
      case Rule::kSame: return expect(operand(i, 0).dtype);
      case Rule::kCompare: return expect(DType::kBool);
      case Rule::kIndex: return expect(DType::kInt64);
      case Rule::kSelect:
        if (operand(i, 0).dtype != DType::kBool) return bad("condition must be bool");
        return expect(operand(i, first).dtype);
      case Rule::kConvert:
        if (i.opcode == Opcode::kBitcast &&
            core::size_of(i.dtype) != core::size_of(operand(i, 0).dtype)) {
          return bad("sizes differ");
        }
        return {};
      case Rule::kThreefry: return check_threefry(i);
      case Rule::kLookup:
        if (operand(i, 0).dtype != DType::kInt32) return bad("index must be i32");
        if (i.index >= kTableCount) return bad("no table {}", i.index);
        return expect(DType::kFloat32);
    }
    return {};
  }

  core::Status check_leaf(const Instruction& i) const {
    const bool position = i.opcode == Opcode::kPosition || i.opcode == Opcode::kRowPosition ||
                          i.opcode == Opcode::kReducedPosition;
    if (position && i.dtype != DType::kInt64) return bad("positions are i64");
    return {};
  }

  core::Status check_threefry(const Instruction& i) const {
    const DType counter = operand(i, 2).dtype;
    const bool keys = operand(i, 0).dtype == DType::kInt32 && operand(i, 1).dtype == DType::kInt32;
    if (!keys || (counter != DType::kInt32 && counter != DType::kInt64)) {
      return bad("takes (i32, i32, i32 or i64)");
    }
    if (i.index > 1) return bad("word must be 0 or 1, got {}", i.index);
    return i.dtype == DType::kInt32 ? core::Status{} : bad("result must be i32");
  }

  core::Status check_level(const Instruction& i) const {
    const OpcodeInfo& op = info(i.opcode);
    Level highest = Level::kUniform;
    for (int k = 0; k < op.arity; ++k) highest = std::max(highest, operand(i, k).level);
    switch (op.family) {
      case Family::kReduce:
        return i.level == Level::kRow ? core::Status{} : bad("result must be a row value");
      case Family::kScan:
        return i.level == Level::kLane ? core::Status{} : bad("result must be a lane value");
      case Family::kStore:
        // A uniform value is stored at the level of the output.
        return i.level >= highest && i.level != Level::kUniform ? core::Status{}
                                                                : bad("wrong level");
      case Family::kLeaf: return check_leaf_level(i);
      default: return i.level == highest ? core::Status{} : bad("wrong level");
    }
  }

  core::Status check_leaf_level(const Instruction& i) const {
    switch (i.opcode) {
      case Opcode::kConstant:
      case Opcode::kScalar: return i.level == Level::kUniform ? core::Status{} : bad("wrong level");
      case Opcode::kPosition:
      case Opcode::kReducedPosition:
        return i.level == Level::kLane ? core::Status{} : bad("wrong level");
      case Opcode::kRowPosition:
        return i.level == Level::kRow ? core::Status{} : bad("wrong level");
      default: return {};  // loads
    }
  }

  core::Status check_index(const Instruction& i) {
    if (i.opcode == Opcode::kLoad) {
      if (i.index >= program_.inputs.size()) return bad("no input {}", i.index);
      if (program_.inputs[i.index] != i.dtype) return bad("type of input {} differs", i.index);
      if (input_level(program_, i.index) != i.level) return bad("input {} has two levels", i.index);
    } else if (i.opcode == Opcode::kScalar) {
      if (i.index >= program_.scalars) return bad("no scalar {}", i.index);
    } else if (i.opcode == Opcode::kStore) {
      if (i.index >= program_.outputs.size()) return bad("no output {}", i.index);
      if (program_.outputs[i.index] != i.dtype) return bad("type of output {} differs", i.index);
      stored_.resize(program_.outputs.size(), false);
      if (stored_[i.index]) return bad("output {} is stored twice", i.index);
      stored_[i.index] = true;
    }
    return {};
  }

  core::Status check_outputs() {
    stored_.resize(program_.outputs.size(), false);
    for (size_t k = 0; k < stored_.size(); ++k) {
      if (!stored_[k]) return bad("output {} is not stored", k);
    }
    return {};
  }

  const Program& program_;
  size_t at_ = 0;
  std::vector<bool> stored_;
};

}  // namespace

core::Status verify(const Program& program) { return Verifier(program).run(); }

}  // namespace mithril::tile
