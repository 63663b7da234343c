#include "emit/python_tile.h"

#include <algorithm>
#include <cstring>

#include "core/tensor_data.h"
#include "emit/python_literal.h"

namespace mithril::emit {

using core::DType;
using tile::Family;
using tile::Instruction;
using tile::Opcode;
using tile::RegId;

namespace {

// Deeper expressions are cut into temporaries: they read badly, and Python limits nesting.
constexpr int kDeepest = 12;

class TilePrinter {
 public:
  TilePrinter(const tile::Program& program, const TileContext& context)
      : program_(program), context_(context), registers_(program.code.size()) {}

  core::Result<TileText> run() {
    count_uses();
    for (RegId id = 0; id < program_.code.size(); ++id) {
      const Instruction& instruction = program_.code[id];
      if (instruction.opcode == Opcode::kStore) {
        out_.expression = finish(instruction.operands[0]);
      } else {
        MITHRIL_RETURN_IF_ERROR(print(id));
      }
    }
    return std::move(out_);
  }

 private:
  struct Register {
    std::string text;
    bool is_number = false;  // a literal, weak in the framework's promotion
    int depth = 0;
    int uses = 0;
  };

  Register& reg(RegId id) { return registers_[id]; }
  const Instruction& code(RegId id) const { return program_.code[id]; }

  void count_uses() {
    for (const Instruction& instruction : program_.code) {
      for (int i = 0; i < tile::info(instruction.opcode).arity; ++i) {
        ++reg(instruction.operands[static_cast<size_t>(i)]).uses;
      }
    }
  }

  core::Status print(RegId id) {
    const Instruction& instruction = code(id);
    switch (instruction.opcode) {
      case Opcode::kLoad: {
        const TileOperand& operand = context_.operands[instruction.index];
        reg(id).text = operand.text;
        reg(id).is_number = operand.is_number;
        return {};
      }
      case Opcode::kConstant:
        reg(id).text = constant(instruction);
        reg(id).is_number = true;
        return {};
      default: return print_call(id);
    }
  }

  core::Status print_call(RegId id) {
    const Instruction& instruction = code(id);
    const tile::OpcodeInfo& opcode = tile::info(instruction.opcode);
    const bool unknown_shape = instruction.opcode == Opcode::kPosition && context_.shape.empty();
    if (opcode.python.empty() || unknown_shape || instruction.opcode == Opcode::kRowPosition ||
        instruction.opcode == Opcode::kReducedPosition) {
      return core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                        "its instruction '{}' has no function in a framework", opcode.text);
    }
    std::string text =
        fmt::format("ops.{}({}{})", opcode.python, arguments(instruction), further_arguments(id));
    if (instruction.opcode == Opcode::kPosition) {
      text = fmt::format("ops.position({})", context_.shape);
    }
    Register& result = reg(id);
    result.depth = depth_below(instruction) + 1;
    if (result.uses > 1 || result.depth >= kDeepest) {
      const std::string name = fmt::format("t{}", out_.temporaries.size());
      out_.temporaries.push_back(fmt::format("{} = {}", name, text));
      text = name;
      result.depth = 0;
    }
    result.text = std::move(text);
    return {};
  }

  std::string arguments(const Instruction& instruction) {
    std::string out;
    for (int i = 0; i < tile::info(instruction.opcode).arity; ++i) {
      const RegId operand = instruction.operands[static_cast<size_t>(i)];
      if (i != 0) out += ", ";
      out += stays_weak(instruction, operand) ? reg(operand).text : strong(operand);
    }
    return out;
  }

  // A literal takes the type of another operand; alone it would have the framework's own.
  bool stays_weak(const Instruction& instruction, RegId operand) {
    if (!reg(operand).is_number) return true;
    if (instruction.opcode == Opcode::kThreefry) return false;
    if (code(operand).dtype == DType::kBFloat16) return false;  // NumPy would widen
    for (const RegId other : instruction.operands) {
      if (other == tile::kNoReg || reg(other).is_number) continue;
      if (code(other).dtype == code(operand).dtype) return true;
    }
    return false;
  }

  std::string strong(RegId id) {
    if (!reg(id).is_number) return reg(id).text;
    return fmt::format("ops.scalar({}, {})", reg(id).text, python_dtype(code(id).dtype));
  }

  std::string further_arguments(RegId id) {
    const Instruction& instruction = code(id);
    switch (tile::info(instruction.opcode).family) {
      case Family::kReduce: return fmt::format(", {}, {}", context_.axis, keepdim(id));
      case Family::kScan: return fmt::format(", {}", context_.axis);
      default: break;
    }
    switch (instruction.opcode) {
      case Opcode::kCast:
      case Opcode::kBitcast: return ", " + python_dtype(instruction.dtype);
      case Opcode::kThreefry: return fmt::format(", {}", instruction.index);
      default: return "";
    }
  }

  // A row value that meets lane values again keeps its axes; they are dropped at the end.
  std::string keepdim(RegId id) const {
    const RegId root = program_.code.back().operands[0];
    return id == root ? context_.keepdim : "True";
  }

  std::string finish(RegId root) {
    const Instruction& instruction = code(root);
    const std::string text = strong(root);
    const bool is_row = instruction.level == tile::Level::kRow;
    const bool dropped = tile::info(instruction.opcode).family == Family::kReduce;
    if (!is_row || dropped || context_.keepdim == "True") return text;
    return fmt::format("ops.drop_axes({}, {})", text, context_.axis);
  }

  static std::string constant(const Instruction& instruction) {
    core::TensorData data{instruction.dtype, {}, {}};
    data.bytes.resize(core::size_of(instruction.dtype));
    std::memcpy(data.bytes.data(), &instruction.bits, data.bytes.size());
    return python_number(core::element(data, 0), instruction.dtype);
  }

  int depth_below(const Instruction& instruction) {
    int depth = 0;
    for (const RegId id : instruction.operands) {
      if (id != tile::kNoReg) depth = std::max(depth, reg(id).depth);
    }
    return depth;
  }

  const tile::Program& program_;
  const TileContext& context_;
  std::vector<Register> registers_;
  TileText out_;
};

}  // namespace

core::Result<TileText> python_tile(const tile::Program& program, const TileContext& context) {
  return TilePrinter(program, context).run();
}

}  // namespace mithril::emit
