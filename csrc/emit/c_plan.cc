#include "emit/c_plan.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/checked.h"
#include "emit/c_like_text.h"
#include "emit/c_loop.h"
#include "emit/c_own_math.h"
#include "emit/c_plan_text.h"
#include "emit/c_prune.h"
#include "ir/text.h"
#include "plan/cost.h"

namespace mithril::emit {
namespace {

using core::short_name;
using plan::Address;
using plan::FunctionCall;
using plan::Plan;
using plan::PlannedStep;

constexpr double kWorthThreads = 20'000;   // nanoseconds
constexpr double kBetweenStops = 500'000;  // nanoseconds, estimated
constexpr size_t kLongestName = 40;

int64_t rounded_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::string identifier(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kLongestName)) {
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return out;
}

/// Memory that a plan takes behind its arena: of kernels, and of the plans that steps run.
class Memory {
 public:
  explicit Memory(int threads) : threads_(threads) {}

  int64_t of(const Plan& plan) const {
    int64_t behind = 0;
    for (const PlannedStep& planned : plan.steps) behind = std::max(behind, of(planned.step));
    return rounded_up(plan.arena_bytes) + behind;
  }
  int64_t carries(const plan::RegionLoop& loop) const {
    int64_t bytes = 0;
    for (const int64_t carry : loop.carry_bytes) bytes += rounded_up(carry);
    return bytes;
  }

 private:
  int64_t of(const plan::Step& step) const {
    if (step.loop != nullptr) {
      const int64_t condition = step.loop->condition.is_there() ? of(*step.loop->condition) : 0;
      return carries(*step.loop) + std::max(of(*step.loop->body), condition);
    }
    if (step.branch != nullptr) return std::max(of(*step.branch->taken), of(*step.branch->other));
    return rounded_up(static_cast<int64_t>(step.scratch_bytes)) * threads_;
  }

  int threads_;
};

class Printer {
 public:
  explicit Printer(const CPlanOptions& options) : options_(options), memory_(options.threads) {}

  core::Result<CPlan> run(const Plan& plan) {
    MITHRIL_ASSIGN(const std::string body, steps(plan));
    const std::string entry = fmt::format(
        "int {0}_run(const void* const* inputs, void* const* outputs, const void* const* "
        "constants,\n    void* memory, {0}_context* context) {{\n"
        "  unsigned char* const arena = memory;\n{1}{2}  return 0;\n}}\n",
        options_.name, kUnused, body);
    CPlan out;
    out.arena_bytes = std::max<int64_t>(memory_.of(plan), 1);
    out.constants = std::move(constants_);
    out.parts = std::move(parts_);
    out.header = header(plan, out);
    out.text =
        "/* Written by mithril. Compile without contraction of products and sums: "
        "-ffp-contract=off. */\n" +
        out.header + fmt::format("typedef {}_context m_context;\n\n", options_.name) +
        head(entry, out.needs_libm) + functions_ + entry;
    return out;
  }

 private:
  static constexpr const char* kUnused =
      "  (void)inputs, (void)outputs, (void)constants, (void)arena, (void)context;\n";

  // ---- the parts of the source

  std::string header(const Plan& plan, const CPlan& made) const {
    std::string guard = options_.name + "_H_";
    for (char& c : guard) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    std::string upper = guard.substr(0, guard.size() - 3);
    return fmt::format(
        R"(#ifndef {0}
#define {0}
#include <stdint.h>

#define {1}_ARENA_BYTES {3}
#define {1}_INPUTS {4}
#define {1}_OUTPUTS {5}
#define {1}_CONSTANTS {6}

#ifdef __cplusplus
extern "C" {{
#endif

/* What a run is told, and what it tells; null where nobody asks. */
typedef struct {{
  int (*stops)(void*);       /* asked now and then whether to stop; may be null */
  void* stops_data;          /* what it is given */
  int step;                  /* of bad data: which step found it */
  int what;                  /* 0 an index, 1 a singular matrix, 2 one that is not positive definite */
  int64_t position;          /* of the first bad element or matrix */
  int64_t value, bound;      /* the index, and what it must be below */
}} {2}_context;

/* 0: done. 1: bad data. 2: stopped. Pointers stand in the order of inputs, outputs and constants;
 * `arena` has {1}_ARENA_BYTES bytes, aligned to 64. Runs with different arenas, outputs and
 * contexts may overlap in time. */
int {2}_run(const void* const* inputs, void* const* outputs, const void* const* constants,
    void* arena, {2}_context* context);

#ifdef __cplusplus
}}
#endif
#endif
)",
        guard, upper, options_.name, made.arena_bytes, plan.input_count, plan.output_count,
        made.constants.size());
  }

  // What functions stand on, and no more. `entry` is the last one.
  std::string head(const std::string& entry, bool& needs_libm) const {
    std::string texts;
    if (!texts_.empty()) texts = "\n#define REF_API M_FN\n" + kernel_text("dims");
    for (const std::string& name : texts_) texts += "\n" + kernel_text(name);
    std::string definitions;
    for (const std::string& text : definitions_) definitions += text;
    const std::string users = definitions + texts + functions_ + entry;
    std::string all = kHeadC99;
    all += options_.freestanding ? kOwnMath : libm_names();
    all += kInstructions;
    all += kExternLanes;
    all += "M_TRIG(f32)\nM_TRIG(f64)\n";
    all += kPlanHead;
    std::string used = prune_c(all, users);
    needs_libm = !options_.freestanding && names_libm(used + users);
    if (needs_libm || (!options_.freestanding && has_any(used + users, {"NAN", "INFINITY"}))) {
      used = "#include <math.h>\n" + used;
    }
    if (has_word(users, "M_PARALLEL")) {
      used += fmt::format("#define M_THREADS {}\n{}", options_.threads, kThreads);
    }
    return used + kStepHead + definitions + texts + "\n";
  }

  // Where steps are inlined side by side, gcc 12 takes what one may not alias for what no step may.
  static constexpr const char* kStepHead = R"(#ifdef __GNUC__
#define M_STEP __attribute__((noinline)) static
#else
#define M_STEP static
#endif
)";

  // Not math.h itself, which not every text wants.
  static std::string_view libm_names() {
    const std::string_view text = kLibm;
    return text.substr(text.find('\n') + 1);
  }

  static bool has_any(const std::string& text, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return has_word(text, word); });
  }

  static bool names_libm(const std::string& text) {
    return has_any(text, {"fma", "fmaf", "sqrt", "sqrtf", "floor", "floorf", "ceil", "ceilf",
                          "rint", "rintf", "trunc", "truncf", "fmod", "fmodf", "fabs"});
  }

  // ---- steps

  // What a plan does; statements of a function with inputs, outputs, constants, arena and context.
  core::Result<std::string> steps(const Plan& plan) {
    const size_t first_constant = constants_.size();
    constants_.insert(constants_.end(), plan.constants.begin(), plan.constants.end());
    std::string out;
    double unasked = 0;
    for (const PlannedStep& planned : plan.steps) {
      const double cost = plan::nanoseconds_of(plan, planned.step);
      unasked += cost;
      const bool is_region = planned.step.call == nullptr;
      if (is_region || unasked > kBetweenStops) {
        out += "  if (m_stops(context)) return 2;\n";
        unasked = 0;
      }
      const auto part = parts_.size();
      parts_.push_back({planned.step.label, planned.step.location});
      out += comment(plan, planned, part);
      const Place place{plan, first_constant, rounded_up(plan.arena_bytes)};
      MITHRIL_ASSIGN(const std::string statement, step(place, planned, part));
      out += statement;
    }
    return out;
  }

  /// Locates a step: the plan it belongs to, and what of the whole program lies before that.
  struct Place {
    const Plan& plan;
    size_t first_constant;
    int64_t behind;  // bytes of the arena before the step's own memory
  };

  static std::string comment(const Plan& plan, const PlannedStep& planned, size_t part) {
    std::string types;
    bool writes = false;
    for (const plan::OperandRef& use : planned.step.operands) {
      const plan::BufferSpec& buffer = plan.buffers[static_cast<size_t>(use.buffer)];
      if (use.write && !writes) types += " ->";
      writes = writes || use.write;
      types += fmt::format(" {}[{}]", short_name(buffer.dtype), fmt::join(buffer.shape, ", "));
    }
    const std::string& path = planned.step.location.path;
    return fmt::format("  /* {}: {}{}{}:{} */\n", part, ir::escape_comment(planned.step.label),
                       path.empty() ? "" : " of ", ir::escape_comment(path), types);
  }

  core::Result<std::string> step(const Place& place, const PlannedStep& planned, size_t part) {
    const plan::Step& step = planned.step;
    if (step.loop != nullptr) return loop(place, planned);
    if (step.branch != nullptr) return branch(place, planned);
    MITHRIL_CHECK(step.call != nullptr, "step {} has no text", step.label);
    if (const auto* call = std::get_if<plan::LoopCall>(step.call.get())) {
      return tile_loop(place, planned, *call);
    }
    return function(place, planned, std::get<FunctionCall>(*step.call), part);
  }

  bool shares(const Plan& plan, const plan::Step& step) const {
    return options_.threads > 1 && plan::nanoseconds_of(plan, step) > kWorthThreads;
  }

  // ---- operands

  static std::string base(const Place& place, int32_t at) {
    const Plan& plan = place.plan;
    if (at == Plan::kArena) return "arena";
    if (at < plan.output_base(0)) return fmt::format("inputs[{}]", at - plan.input_base(0));
    if (at < plan.constant_base(0)) return fmt::format("outputs[{}]", at - plan.output_base(0));
    return fmt::format("constants[{}]",
                       place.first_constant + static_cast<size_t>(at - plan.constant_base(0)));
  }

  // Pointer to an operand as its elements, or as bytes.
  static std::string pointer(const Place& place, const PlannedStep& planned, size_t operand) {
    const Address& at = planned.operands[operand];
    const plan::OperandRef& use = planned.step.operands[operand];
    const plan::BufferSpec& buffer = place.plan.buffers[static_cast<size_t>(use.buffer)];
    const std::string type =
        fmt::format("({}m_{}*)", use.write ? "" : "const ", short_name(buffer.dtype));
    std::string text = base(place, at.base);
    if (at.base == Plan::kArena) return fmt::format("{}(arena + {})", type, at.offset);
    if (at.offset == 0) return type + text;
    const auto size = static_cast<int64_t>(core::size_of(buffer.dtype));
    return fmt::format("{}{} + {}", type, text, at.offset / size);
  }

  // Names of operands: those that are one memory share one.
  static std::vector<std::string> names(const PlannedStep& planned, std::vector<bool>& is_own) {
    std::vector<std::string> out;
    is_own.assign(planned.operands.size(), true);
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      size_t same = i;
      for (size_t k = 0; k < planned.operands.size(); ++k) {
        const Address &a = planned.operands[i], &b = planned.operands[k];
        const bool is_one = a.base == b.base && a.offset == b.offset && k != i;
        if (is_one && planned.step.operands[k].write) same = k;
      }
      is_own[i] = same == i;
      out.push_back(fmt::format("a{}", same));
    }
    return out;
  }

  /// A function of a step's own: its parameters, and what a call passes.
  struct Signature {
    std::vector<std::string> names;
    std::string parameters, arguments;
    std::string aliases;  // declarations of operands that are another one's memory
  };

  static Signature signature(const Place& place, const PlannedStep& planned) {
    Signature out;
    std::vector<bool> is_own;
    out.names = names(planned, is_own);
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      const plan::OperandRef& use = planned.step.operands[i];
      const plan::BufferSpec& buffer = place.plan.buffers[static_cast<size_t>(use.buffer)];
      if (!is_own[i]) {
        out.aliases += fmt::format("  const m_{}* const a{} = {};\n", short_name(buffer.dtype), i,
                                   out.names[i]);
        continue;
      }
      const char* const comma = out.parameters.empty() ? "" : ", ";
      out.parameters += fmt::format("{}{}m_{}* restrict {}", comma, use.write ? "" : "const ",
                                    short_name(buffer.dtype), out.names[i]);
      out.arguments += comma + pointer(place, planned, i);
    }
    return out;
  }

  // The name of the function with that body; equal ones are printed once.
  std::string named(const std::string& kind, const std::string& result,
                    const std::string& parameters, const std::string& body) {
    const std::string rest = fmt::format("({}) {{\n{}}}\n", parameters, body);
    const auto [at, is_new] = function_names_.try_emplace(result + rest, "");
    if (is_new) {
      at->second = fmt::format("{}_{}", identifier(kind), function_names_.size() - 1);
      functions_ += fmt::format("M_STEP {} {}{}\n", result, at->second, rest);
    }
    return at->second;
  }

  // ---- kinds of steps

  core::Result<std::string> tile_loop(const Place& place, const PlannedStep& planned,
                                      const plan::LoopCall& call) {
    const Signature own = signature(place, planned);
    MITHRIL_ASSIGN(std::string body,
                   print_c_loop(call, own.names, shares(place.plan, planned.step), definitions_));
    if (body.empty()) return std::string("  /* nothing to do */\n");
    for (const std::string& parameter : own.names) {
      if (body.find(parameter + "[") == std::string::npos)
        body = fmt::format("  (void){};\n", parameter) + body;
    }
    const std::string name = named(planned.step.label, "void", own.parameters, body);
    return fmt::format("  {}({});\n", name, own.arguments);
  }

  core::Result<std::string> function(const Place& place, const PlannedStep& planned,
                                     const FunctionCall& call, size_t part) {
    for (const std::string& text : call.texts) {
      if (std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(text);
    }
    Signature own = signature(place, planned);
    const plan::Step& step = planned.step;
    const bool has_scratch = has_word(call.call, "scratch");
    if (has_scratch) {
      own.parameters += ", unsigned char* memory";
      own.arguments += fmt::format(", arena + {}", place.behind);
    }
    const bool is_checked = call.check != FunctionCall::Check::kNone;
    const std::string body = own.aliases + function_body(place.plan, step, call);
    const std::string name = named(call.name, is_checked ? "m_i64" : "void", own.parameters, body);
    if (!is_checked) return fmt::format("  {}({});\n", name, own.arguments);
    std::string value = "0";
    if (call.check == FunctionCall::Check::kIndex) {
      value =
          fmt::format("(m_i64)({})[bad]", pointer(place, planned, static_cast<size_t>(call.index)));
    }
    return fmt::format(
        "  {{\n    const m_i64 bad = {}({});\n    if (bad >= 0) return m_bad(context, {}, {}, bad, "
        "{}, {});\n  }}\n",
        name, own.arguments, part, static_cast<int>(call.check) - 1, value, call.bound);
  }

  std::string function_body(const Plan& plan, const plan::Step& step,
                            const FunctionCall& call) const {
    std::string body;
    if (!call.declarations.empty()) body += fmt::format("  {}\n", call.declarations);
    const bool is_checked = call.check != FunctionCall::Check::kNone;
    const bool parts = shares(plan, step) && step.units > step.grain && !is_checked;
    const bool has_scratch = has_word(call.call, "scratch");
    const auto scratch = rounded_up(static_cast<int64_t>(step.scratch_bytes));
    if (!parts) {
      if (has_scratch) body += "  void* const scratch = memory;\n";
      body += fmt::format("  const m_i64 begin = 0, end = {};\n", step.units);
      return body + fmt::format("  {}{};\n", is_checked ? "return " : "", call.call);
    }
    const int64_t each = std::max<int64_t>(step.grain, step.units / (8 * options_.threads));
    body += fmt::format("  M_PARALLEL\n  for (m_i64 begin = 0; begin < {}; begin += {}) {{\n",
                        step.units, each);
    body += fmt::format("    const m_i64 end = {0} - begin < {1} ? {0} : begin + {1};\n",
                        step.units, each);
    if (has_scratch) {
      body += fmt::format("    void* const scratch = memory + (m_i64)M_THREAD * {};\n", scratch);
    }
    return body + fmt::format("    {};\n  }}\n", call.call);
  }

  // ---- plans in plans

  static constexpr const char* kPlanParameters =
      "const void* const* inputs, void* const* outputs, const void* const* constants, unsigned "
      "char* arena, m_context* context";

  core::Result<std::string> inner(const char* kind, const Plan& plan) {
    MITHRIL_ASSIGN(const std::string body, steps(plan));
    return named(kind, "int", kPlanParameters, kUnused + body + "  return 0;\n");
  }

  core::Result<std::string> loop(const Place& place, const PlannedStep& planned) {
    const plan::RegionLoop& loop = *planned.step.loop;
    MITHRIL_ASSIGN(const std::string body, inner("body", *loop.body));
    std::string condition;
    if (loop.condition.is_there()) {
      MITHRIL_ASSIGN(condition, inner("condition", *loop.condition));
    }
    const size_t carries = loop.carry_bytes.size(), xs = loop.x_bytes.size();
    const size_t ys = loop.y_bytes.size();
    const size_t inputs = carries + xs + static_cast<size_t>(loop.constants);
    const int64_t own = place.behind + memory_.carries(loop);
    std::string text = "  {\n";
    const auto line = [&](const std::string& more) { text += "    " + more + "\n"; };
    line(fmt::format("const void* in[{}];", std::max<size_t>(inputs, 1)));
    line(fmt::format("void* out[{}];", std::max<size_t>(carries + ys, 1)));
    line(fmt::format("m_i64 i = 0;"));
    line("int status;");
    for (size_t c = carries + xs; c < inputs; ++c) {
      line(fmt::format("in[{}] = {};", c, address(place, planned, c)));
    }
    const auto [read, write] = print_carries(place, planned, inputs);
    line(loop.condition.is_there() ? "for (;; ++i) {"
                                   : fmt::format("for (; i < {}; ++i) {{", loop.length));
    text += read;
    if (loop.condition.is_there()) {
      text += fmt::format(
          "      m_bool go = 0;\n      out[0] = &go;\n"
          "      status = {}(in, out, constants, arena + {}, context);\n"
          "      if (status != 0) return status;\n      if (!go) break;\n",
          condition, own);
    }
    text += write;
    const std::string here =
        loop.reverse ? fmt::format("({} - i)", loop.length - 1) : std::string("i");
    for (size_t x = 0; x < xs; ++x) {
      text += fmt::format("      in[{}] = (const unsigned char*){} + {} * {};\n", carries + x,
                          address(place, planned, carries + x), here, loop.x_bytes[x]);
    }
    for (size_t y = 0; y < ys; ++y) {
      text += fmt::format("      out[{}] = (unsigned char*){} + {} * {};\n", carries + y,
                          address(place, planned, inputs + carries + y), here, loop.y_bytes[y]);
    }
    text += fmt::format(
        "      status = {}(in, out, constants, arena + {}, context);\n"
        "      if (status != 0) return status;\n      if (m_stops(context)) return 2;\n    }}\n",
        body, own);
    text += read_again(read);
    for (size_t c = 0; c < carries; ++c) {
      line(fmt::format("if (in[{0}] != {1}) memcpy({1}, in[{0}], {2});", c,
                       address(place, planned, inputs + c), loop.carry_bytes[c]));
    }
    return text + "  }\n";
  }

  // Prints the addresses that a step reads its carries from and those that it writes them to. A
  // carry is read where the step before wrote it: in two places in turn, at last in the result.
  static std::pair<std::string, std::string> print_carries(const Place& place,
                                                           const PlannedStep& planned,
                                                           size_t inputs) {
    const plan::RegionLoop& loop = *planned.step.loop;
    std::string read, write;
    int64_t at = place.behind;
    for (size_t c = 0; c < loop.carry_bytes.size(); ++c) {
      const std::string before = address(place, planned, c);
      const std::string result = address(place, planned, inputs + c);
      const std::string last = fmt::format("(({} - i) & 1) == 0", loop.length);
      read += fmt::format("      in[{}] = i == 0 ? {} : {} ? (const void*){} : arena + {};\n", c,
                          before, last, result, at);
      write += fmt::format("      out[{}] = (({} - i) & 1) == 0 ? {} : arena + {};\n", c,
                           loop.length - 1, result, at);
      at += rounded_up(loop.carry_bytes[c]);
    }
    return {std::move(read), std::move(write)};
  }

  // Where the carries are behind the last step.
  static std::string read_again(std::string read) {
    size_t at = 0;
    while ((at = read.find("      in[", at)) != std::string::npos) read.erase(at, 2);
    return read;
  }

  // An operand without its type.
  static std::string address(const Place& place, const PlannedStep& planned, size_t operand) {
    const Address& at = planned.operands[operand];
    if (at.base == Plan::kArena) return fmt::format("(void*)(arena + {})", at.offset);
    if (at.offset == 0) return base(place, at.base);
    return fmt::format("(void*)((unsigned char*){} + {})", base(place, at.base), at.offset);
  }

  core::Result<std::string> branch(const Place& place, const PlannedStep& planned) {
    const plan::Branch& branch = *planned.step.branch;
    MITHRIL_ASSIGN(const std::string taken, inner("taken", *branch.taken));
    MITHRIL_ASSIGN(const std::string other, inner("other", *branch.other));
    const auto inputs = static_cast<size_t>(branch.inputs);
    const size_t outputs = planned.operands.size() - inputs - 1;
    std::string text = "  {\n";
    text += fmt::format("    const void* in[{}];\n    void* out[{}];\n    int status;\n",
                        std::max<size_t>(inputs, 1), std::max<size_t>(outputs, 1));
    for (size_t i = 0; i < inputs; ++i) {
      text += fmt::format("    in[{}] = {};\n", i, address(place, planned, i));
    }
    for (size_t i = 0; i < outputs; ++i) {
      text += fmt::format("    out[{}] = {};\n", i, address(place, planned, inputs + 1 + i));
    }
    if (inputs == 0) text += "    in[0] = 0;\n";
    text += fmt::format(
        "    status = *{0} ? {1}(in, out, constants, arena + {3}, context)\n"
        "        : {2}(in, out, constants, arena + {3}, context);\n"
        "    if (status != 0) return status;\n  }}\n",
        pointer(place, planned, inputs), taken, other, place.behind);
    return text;
  }

  const CPlanOptions& options_;
  Memory memory_;
  std::vector<std::shared_ptr<const core::TensorData>> constants_;
  std::vector<plan::Part> parts_;
  std::vector<std::string> texts_;
  std::set<std::string> definitions_;
  std::map<std::string, std::string> function_names_;  // by parameters and body
  std::string functions_;
};

}  // namespace

core::Result<CPlan> print_c_plan(const Plan& plan, const CPlanOptions& options) {
  if (!is_c_name(options.name)) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "the name of C source must be at most 64 letters, digits and underscores "
                      "that begin with no digit, got '{}'",
                      ir::escape_comment(options.name));
  }
  return Printer(options).run(plan);
}

bool is_c_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= 64 &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

}  // namespace mithril::emit
