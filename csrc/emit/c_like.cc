// A kernel is a loop over kept indices; in it each section is one loop over the reduced indices,
// which computes anew what it needs of the sections before. Registers are constants v0, v1 ….
#include "emit/c_like.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "emit/c_instruction.h"
#include "emit/c_like_text.h"
#include "emit/indented_text.h"
#include "tile/expand.h"
#include "tile/sections.h"

namespace mithril::emit {
namespace {

using core::DType;
using core::short_name;
using tile::Instruction;
using tile::Level;
using tile::Opcode;
using tile::RegId;

// ---------------------------------------------------------------- one kernel

class Printer : IndentedText {
 public:
  Printer(const CLikeKernel& kernel, Dialect dialect)
      : kernel_(kernel),
        dialect_(dialect),
        program_(tile::expand(kernel.program)),
        section_(tile::sections_of(program_)),
        buffers_(program_.inputs.size() + program_.outputs.size()) {}

  std::string run(std::set<std::string>& definitions) {
    for (const Instruction& i : program_.code) {
      if (i.opcode == Opcode::kLookup) definitions.insert(c_table(i.index));
      if (reduces(i)) definitions.insert(c_reduction(i.opcode, at(i.operands[0]).dtype));
    }
    head();
    values(Level::kUniform, [](RegId) { return true; });
    open(dialect_ == Dialect::kC99 ? "for (m_i64 k = begin; k < end; ++k) {" : "{");
    offsets("o", "k", 0, kernel_.kept, [&](size_t b) { return !is_uniform(b); });
    const int32_t last = section_.empty() ? 0 : *std::max_element(section_.begin(), section_.end());
    for (int32_t s = 0; s <= last; ++s) section(s);
    close();
    close();
    return take_text();
  }

 private:
  const Instruction& at(RegId r) const { return program_.code[r]; }
  bool is_input(size_t b) const { return b < program_.inputs.size(); }
  DType dtype(size_t b) const {
    return is_input(b) ? program_.inputs[b] : program_.outputs[b - program_.inputs.size()];
  }
  size_t buffer_of(const Instruction& i) const {
    return i.index + (stores(i) ? program_.inputs.size() : 0);
  }
  bool is_uniform(size_t b) const {
    return is_input(b) && input_level(program_, static_cast<uint32_t>(b)) == Level::kUniform;
  }
  bool is_row(size_t b) const {
    const auto k = static_cast<uint32_t>(b);
    return is_input(b)
               ? input_level(program_, k) == Level::kRow
               : output_level(program_, k - static_cast<uint32_t>(program_.inputs.size())) ==
                     Level::kRow;
  }

  // ---- the function

  void head() {
    const bool c99 = dialect_ == Dialect::kC99;
    open(c99 ? fmt::format(
                   "void {}(m_i64 begin, m_i64 end, const m_i64* shape, const double* scalars, "
                   "void* const* buffers) {{",
                   kernel_.name)
             : device_head());
    for (size_t b = 0; c99 && b < buffers_; ++b) {
      line(fmt::format("{0}m_{1}* b{2} = buffers[{2}];", is_input(b) ? "const " : "",
                       short_name(dtype(b)), b));
    }
    std::string count = "1";
    for (size_t d = 0; d < kernel_.reduced; ++d) {
      count += fmt::format(" * shape[{}]", kernel_.kept + d);
    }
    line(fmt::format("const m_i64 count = {};", count));
    line("(void)shape, (void)scalars, (void)count;");
    if (c99) return;
    line(fmt::format("const m_i64 k = begin + {};",
                     dialect_ == Dialect::kOpenCl
                         ? "(m_i64)get_global_id(0)"
                         : "((m_i64)blockIdx.x * blockDim.x + threadIdx.x)"));
    line("if (k >= end) return;");
  }

  std::string device_head() const {
    const bool opencl = dialect_ == Dialect::kOpenCl;
    const char* const global = opencl ? "__global " : "";
    std::string text = fmt::format(
        "{0} void {1}(const m_i64 begin, const m_i64 end, {2}const m_i64* shape, "
        "{2}const double* scalars",
        opencl ? "__kernel" : "extern \"C\" __global__", kernel_.name, global);
    for (size_t b = 0; b < buffers_; ++b) {
      text += fmt::format(", {}{}m_{}* b{}", global, is_input(b) ? "const " : "",
                          short_name(dtype(b)), b);
    }
    return text + ") {";
  }

  // Where index `index` of the dims [first, first + rank) lies in each buffer: PREFIX0, PREFIX1 ….
  template <class Wanted>
  void offsets(std::string_view prefix, std::string_view index, size_t first, size_t rank,
               const Wanted& wanted) {
    const size_t dims = kernel_.kept + kernel_.reduced;
    std::string declared;
    for (size_t b = 0; b < buffers_; ++b) {
      if (!wanted(b)) continue;
      declared += fmt::format("{} {}{} = 0", declared.empty() ? "m_i64" : ",", prefix, b);
    }
    if (declared.empty()) return;
    line(declared + ";");
    if (rank == 0) return;
    open("{");
    line(fmt::format("m_i64 rest = {}, i;", index));
    for (size_t d = rank; d-- > 0;) {
      line(d == 0 ? "i = rest;"
                  : fmt::format("i = rest % shape[{0}], rest /= shape[{0}];", first + d));
      for (size_t b = 0; b < buffers_; ++b) {
        if (!wanted(b)) continue;
        line(fmt::format("{}{} += i * shape[{}];", prefix, b, dims + b * dims + first + d));
      }
    }
    close();
  }

  // Row values, one loop over the lanes, the reductions' results, row outputs.
  void section(int32_t s) {
    values(Level::kRow, [&](RegId r) { return section_[r] == s && !reduces(at(r)); });
    const std::vector<bool> needed = needed_lanes(s);
    std::vector<RegId> states;
    bool runs = false;
    for (RegId r = 0; r < program_.code.size(); ++r) {
      const Instruction& i = at(r);
      if (section_[r] == s && reduces(i)) states.push_back(r);
      runs = runs || (section_[r] == s && (reduces(i) || (stores(i) && i.level == Level::kLane)));
    }
    for (const RegId r : states) begin(r);
    if (runs) lanes(s, needed, states);
    for (const RegId r : states) finish(r);
  }

  // Which lane values section s computes.
  std::vector<bool> needed_lanes(int32_t s) const {
    std::vector<bool> needed(program_.code.size(), false);
    for (size_t r = needed.size(); r-- > 0;) {
      const Instruction& i = program_.code[r];
      const bool root = section_[r] == s && (reduces(i) || (stores(i) && i.level == Level::kLane));
      if (!root && !needed[r]) continue;
      for (const RegId operand : i.operands) {
        if (operand != tile::kNoReg && at(operand).level == Level::kLane) needed[operand] = true;
      }
    }
    return needed;
  }

  void lanes(int32_t s, const std::vector<bool>& needed, const std::vector<RegId>& states) {
    open("{");
    for (RegId r = 0; r < program_.code.size(); ++r) {
      if (needed[r] && scans(at(r))) {
        // the sum so far, and what rounding took from it
        const DType kept = at(r).dtype == DType::kFloat32 ? DType::kFloat64 : at(r).dtype;
        line(fmt::format("m_{0} c{1} = 0, e{1} = 0;", short_name(kept), r));
      }
    }
    open("for (m_i64 r = 0; r < count; ++r) {");
    std::vector<bool> used(buffers_, false);
    for (RegId r = 0; r < program_.code.size(); ++r) {
      const Instruction& i = at(r);
      const bool is_stored = stores(i) && section_[r] == s && i.level == Level::kLane;
      if (is_stored || (needed[r] && i.opcode == Opcode::kLoad)) used[buffer_of(i)] = true;
    }
    offsets("p", "r", kernel_.kept, kernel_.reduced, [&](size_t b) { return used[b]; });
    values(Level::kLane, [&](RegId r) { return needed[r] || (section_[r] == s && stores(at(r))); });
    for (const RegId r : states) take(r);
    close();
    close();
  }

  // Registers and outputs of one level, in order.
  template <class Wanted>
  void values(Level level, const Wanted& wanted) {
    for (RegId r = 0; r < program_.code.size(); ++r) {
      const Instruction& i = at(r);
      if (i.level != level || !wanted(r)) continue;
      if (stores(i)) {
        line(fmt::format("{} = v{};", element(i), i.operands[0]));
      } else if (scans(i)) {
        line(fmt::format("const m_{0} v{1} = m_running_{0}(&c{1}, &e{1}, v{2}, r == 0);",
                         short_name(i.dtype), r, i.operands[0]));
      } else {
        line(fmt::format("const m_{} v{} = {};", short_name(i.dtype), r, expression(i)));
      }
    }
  }

  // ---- instructions

  std::string element(const Instruction& i) const {
    const size_t b = buffer_of(i);
    if (i.level == Level::kUniform) return fmt::format("*b{}", b);
    const bool moves = i.level == Level::kLane && !is_row(b);
    return moves ? fmt::format("b{0}[o{0} + p{0}]", b) : fmt::format("b{0}[o{0}]", b);
  }

  std::string expression(const Instruction& i) const {
    switch (i.opcode) {
      case Opcode::kLoad: return element(i);
      case Opcode::kConstant: return c_constant(i.dtype, i.bits);
      case Opcode::kScalar:
        return c_cast(DType::kFloat64, i.dtype, fmt::format("scalars[{}]", i.index));
      case Opcode::kPosition: return "k * count + r";
      case Opcode::kRowPosition: return "k";
      case Opcode::kReducedPosition: return "r";
      default: return call(i);
    }
  }

  std::string call(const Instruction& i) const {
    return c_call(program_, i, [](RegId r) { return fmt::format("v{}", r); });
  }

  // ---- reductions

  void begin(RegId r) {
    const std::string name = c_state(at(r).opcode, at(at(r).operands[0]).dtype);
    line(fmt::format("{}_state s{};", name, r));
    line(fmt::format("{}_begin(&s{});", name, r));
  }

  static int width(const Instruction& i) {
    return i.order == tile::Order::kLanes ? static_cast<int>(tile::kLanesWidth) : 1;
  }

  void take(RegId r) {
    const Instruction& i = at(r);
    const std::string name = c_state(i.opcode, at(i.operands[0]).dtype);
    if (finds_place(i.opcode)) {
      return line(fmt::format("{}_take(&s{}, v{});", name, r, i.operands[0]));
    }
    const int64_t block = i.order == tile::Order::kLanes ? tile::kLanesBlock : tile::kRowsBlock;
    line(fmt::format("{}_take(&s{}, v{}, {}, {});", name, r, i.operands[0], width(i), block));
  }

  void finish(RegId r) {
    const Instruction& i = at(r);
    if (finds_place(i.opcode)) return line(fmt::format("const m_i64 v{0} = s{0}.at;", r));
    const DType from = at(i.operands[0]).dtype;
    line(fmt::format("const m_{0} v{1} = {2}_end(&s{1}, {3}, {4});", short_name(i.dtype), r,
                     c_state(i.opcode, from), width(i), c_identity(i.opcode, from)));
  }

  const CLikeKernel& kernel_;
  Dialect dialect_;
  tile::Program program_;
  std::vector<int32_t> section_;
  size_t buffers_;
};

}  // namespace

core::Result<std::string> print_c_like(std::span<const CLikeKernel> kernels, Dialect dialect) {
  std::set<std::string> definitions;
  std::string functions;
  for (const CLikeKernel& kernel : kernels) {
    MITHRIL_RETURN_IF_ERROR(tile::verify(kernel.program));
    functions += "\n" + Printer(kernel, dialect).run(definitions);
  }
  std::string out = dialect == Dialect::kC99      ? std::string(kHeadC99) + kLibm
                    : dialect == Dialect::kOpenCl ? kHeadOpenCl
                                                  : kHeadCuda;
  out += kInstructions;
  out += kExternLanes;
  out += "M_TRIG(f32)\nM_TRIG(f64)\n";
  for (const std::string& text : definitions) out += text;
  return out + functions;
}

}  // namespace mithril::emit
