// A kernel is an entry that says which units its item does, and a function of a step's own that
// does them: the compiler knows of its operands that none is a part of another.
#include "backends/device/plan_code.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "backends/device/attention_text.h"
#include "emit/c_like_text.h"
#include "emit/c_loop.h"
#include "emit/c_plan_text.h"
#include "emit/c_prune.h"
#include "emit/c_vector_text.h"
#include "plan/cost.h"

namespace mithril::device {
namespace {

using core::short_name;
using plan::FunctionCall;
using plan::Plan;
using plan::PlannedStep;

constexpr int64_t kPiece = 4096;       // elements that an item of a CPU takes in one go
constexpr double kWorthItem = 10'000;  // nanoseconds of work that are worth an item of a CPU
constexpr int64_t kItemsOfUnit = 4;    // items for each of several compute units, at most
// Of a chain: its kernel has the local arrays of all steps, and takes two parameters for each base.
constexpr int64_t kMostLaunches = 24;
constexpr size_t kMostBases = 48;
constexpr double kLongestChain = 500'000;  // nanoseconds

// Writes a Report, if it is the first one.
constexpr const char* kReportHead = R"(
M_FN void m_report_index(M_GLOBAL m_i64* report, m_i64 step, m_i64 position, m_i64 value) {
  if (!M_ELECTED(report)) return;
  report[1] = step;
  report[2] = position;
  report[3] = value;
}
)";

/// Says how many threads do a unit together, and what they share.
struct Group {
  int threads = 0;
  std::span<const plan::SharedArray> shared = {};
};

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  core::Result<Source> run(const Plan& plan) {
    MITHRIL_ASSIGN(auto code, print(plan));
    Source out;
    out.code = std::move(code);
    out.checked = std::move(checked_);
    out.host_steps = host_steps_;
    if (!kernels_.empty()) out.text = head() + functions_ + kernels_;
    return out;
  }

 private:
  // ---- plans

  core::Result<std::shared_ptr<const PlanCode>> print(const Plan& plan) {
    auto out = std::make_shared<PlanCode>();
    out->plan = &plan;
    int64_t behind = 0;
    std::vector<Part> parts;
    for (const PlannedStep& planned : plan.steps) {
      int64_t own = 0;
      part_ = {};
      MITHRIL_ASSIGN(StepCode code, step(plan, planned, own));
      out->steps.push_back(std::move(code));
      parts.push_back(std::move(part_));
      behind = std::max(behind, own);
    }
    if (options_.is_cpu) add_chains(*out, parts);
    out->bytes = rounded_up(plan.arena_bytes) + behind;
    return std::shared_ptr<const PlanCode>(std::move(out));
  }

  // `own`: bytes that it takes behind the arena.
  core::Result<StepCode> step(const Plan& plan, const PlannedStep& planned, int64_t& own) {
    const plan::Step& step = planned.step;
    if (step.loop != nullptr) return loop(*step.loop, own);
    if (step.branch != nullptr) return branch(*step.branch, own);
    StepCode out;
    if (step.call == nullptr) {
      out.kind = StepCode::Kind::kHost;
      ++host_steps_;
      return out;
    }
    if (const auto* call = std::get_if<plan::LoopCall>(step.call.get())) {
      return tile_loop(plan, planned, *call);
    }
    const auto& call = std::get<FunctionCall>(*step.call);
    if (call.product != nullptr && !options_.refused.contains(call.product.get())) {
      return library_product(plan, planned, call);
    }
    if (call.in_phases != nullptr) return phases(plan, planned, call);
    const bool has_text = !call.call.empty() || call.in_tile != nullptr;
    if (call.product != nullptr && !has_text) return no_kernel(call);
    return function(plan, planned, call, own);
  }

  core::Result<StepCode> loop(const plan::RegionLoop& loop, int64_t& own) {
    StepCode out;
    out.kind = StepCode::Kind::kLoop;
    MITHRIL_ASSIGN(out.first, print(*loop.body));
    own = out.first->bytes;
    if (loop.condition.is_there()) {
      MITHRIL_ASSIGN(out.second, print(*loop.condition));
      own = std::max(own, out.second->bytes + rounded_up(1));
    }
    for (const int64_t carry : loop.carry_bytes) own += rounded_up(carry);
    return out;
  }

  core::Result<StepCode> branch(const plan::Branch& branch, int64_t& own) {
    StepCode out;
    out.kind = StepCode::Kind::kBranch;
    MITHRIL_ASSIGN(out.first, print(*branch.taken));
    MITHRIL_ASSIGN(out.second, print(*branch.other));
    own = std::max(out.first->bytes, out.second->bytes);
    return out;
  }

  // ---- kernels

  /// A step as a link of a chain.
  struct Part {
    std::set<size_t> bases;  // that it reads or writes
    std::string arguments;   // by those
    std::string call;        // of its function; empty: it is not launched
  };

  /// Operands of a step as parameters: those that are one memory are one.
  struct Signature {
    std::vector<std::string> names;  // by operand
    std::vector<size_t> own;         // operands that are passed
    std::string parameters;          // of the function
    std::string entry_parameters;    // of the entry: memory and offset of each
    std::string arguments;           // what the entry passes to the function
    std::string aliases;             // of operands that are not passed, in the function
    Part part;
  };

  emit::CLoopCut cut() const {
    return {options_.is_cpu ? kPiece : 1, options_.takes_columns,   options_.chunk,
            options_.is_vectored,         options_.threads_of_rows, options_.shared_bytes};
  }
  const Dialect& dialect() const { return options_.dialect; }

  /// `taken`: the operands that it is about, ascending; empty: all.
  Signature signature(const Plan& plan, const PlannedStep& planned,
                      const std::vector<size_t>& taken = {}) const {
    Signature out;
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      const size_t same = first_of(planned, i);
      out.names.push_back(fmt::format("a{}", same));
      if (!taken.empty() && !std::binary_search(taken.begin(), taken.end(), i)) continue;
      const plan::OperandRef& use = planned.step.operands[i];
      const plan::BufferSpec& buffer = plan.buffers[static_cast<size_t>(use.buffer)];
      const char* const constness = use.write ? "" : "const ";
      const std::string_view type = short_name(buffer.dtype);
      if (same != i) {
        out.aliases += fmt::format("  {0}{1}m_{2}* const a{3} = ({0}{1}m_{2}*)a{4};\n",
                                   dialect().global, constness, type, i, same);
        continue;
      }
      out.own.push_back(i);
      out.parameters += fmt::format("{}{}m_{}* {} a{}, ", dialect().global, constness, type,
                                    dialect().restricts, i);
      out.entry_parameters += fmt::format("{0}{1}{2}* m{3}, const m_i64 o{3}, ", dialect().global,
                                          constness, dialect().byte, i);
      out.arguments +=
          fmt::format("({0}{1}m_{2}*)(m{3} + o{3}), ", dialect().global, constness, type, i);
      const auto base = static_cast<size_t>(planned.operands[i].base);
      out.part.bases.insert(base);
      out.part.arguments += fmt::format("({0}{1}m_{2}*)(m{3} + o{3} + {4}), ", dialect().global,
                                        constness, type, base, planned.operands[i].offset);
    }
    return out;
  }

  // The operand that stands for `i`: the last of the same memory that is written, if any is.
  static size_t first_of(const PlannedStep& planned, size_t i) {
    const plan::Address& own = planned.operands[i];
    size_t same = i;
    for (size_t k = 0; k < planned.operands.size(); ++k) {
      const plan::Address& other = planned.operands[k];
      const bool is_one = other.base == own.base && other.offset == own.offset;
      if (is_one && planned.step.operands[k].write) same = k;
    }
    return same;
  }

  // Counts the items that share the units of a step.
  int64_t items_of(const Plan& plan, const plan::Step& step, int64_t units) const {
    if (!options_.is_cpu) return std::min(units, options_.most_items);
    const double work = plan::nanoseconds_of(plan, step) / kWorthItem;
    const int64_t shares = options_.units == 1 ? 1 : options_.units * kItemsOfUnit;
    const int64_t most = std::min(shares, units);
    return std::clamp<int64_t>(static_cast<int64_t>(work), 1, std::max<int64_t>(most, 1));
  }

  // The name of the text with `NAME` in it; equal ones are printed once.
  static std::string named(std::map<std::string, std::string>& names, std::string& texts,
                           const char* prefix, const std::string& before,
                           const std::string& after) {
    const auto [at, is_new] = names.try_emplace(before + "@" + after, "");
    if (is_new) {
      at->second = fmt::format("{}{}", prefix, names.size() - 1);
      texts += before + at->second + after;
    }
    return at->second;
  }

  /// Declares what threads share where the dialect wants it: in the function, or in the entry,
  /// which is returned then.
  std::string share(const Group& group, Signature& own, std::string& body) const {
    std::string declared;
    for (const plan::SharedArray& array : group.shared) {
      const std::string one = fmt::format("{}{} {}[{}]{}", dialect().shared, array.type, array.name,
                                          array.count, array.row);
      declared += "  " + one + ";\n";
      if (!dialect().passes_shared) continue;
      own.parameters += one + ", ";
      own.arguments += array.name + ", ";
    }
    if (dialect().passes_shared) return declared;
    body = declared + body;
    return "";
  }

  /// The entry that lets items do the units of a function; a group of threads does each, or one.
  void launch(StepCode& code, Signature own, std::string body, int64_t units, int64_t items,
              const Group& group = {}) {
    const int64_t each = (units + items - 1) / items;
    const int threads = group.threads;
    const std::string shared = share(group, own, body);
    const size_t passed = own.own.size() + (code.has_scratch ? 1 : 0) + (code.is_checked ? 1 : 0);
    MITHRIL_CHECK(static_cast<int64_t>(passed) * kOperandBytes <= options_.parameter_bytes,
                  "a kernel of {} operands", passed);
    code.kind = StepCode::Kind::kLaunch;
    code.launch = {(units + each - 1) / each, threads};
    code.operands = own.own;
    const std::string function = named(
        function_names_, functions_, "f", std::string(dialect().function),
        fmt::format("({}const m_i64 begin, const m_i64 end) {{\n{}}}\n\n", own.parameters, body));
    part_ = own.part;
    part_.call = fmt::format("  {}({}0, {});\n", function, own.part.arguments, units);
    std::string parameters = own.entry_parameters;
    parameters.resize(parameters.size() - std::min<size_t>(parameters.size(), 2));
    const std::string_view item = threads > 0 ? dialect().block : dialect().item;
    const std::string guard = dialect().may_exceed && threads == 0
                                  ? fmt::format("  if (begin >= {}) return;\n", units)
                                  : "";
    code.kernel = named(
        kernel_names_, kernels_, "k", dialect().entry(threads),
        fmt::format(
            "({}) {{\n{}  const m_i64 begin = {} * {};\n{}"
            "  const m_i64 end = {} - begin < {} ? {} : begin + {};\n  {}({}begin, end);\n}}\n",
            parameters, shared, item, each, guard, units, each, units, each, function,
            own.arguments));
  }

  // ---- chains

  // A step that finds wrong data ends its chain: what comes behind may have to wait for it.
  void add_chains(PlanCode& code, const std::vector<Part>& parts) {
    for (size_t at = 0; at < parts.size();) {
      Chain chain;
      std::set<size_t> bases;
      std::string calls;
      int64_t launches = 0;
      for (; at + chain.count < parts.size() && !chain.is_checked; ++chain.count) {
        const StepCode& step = code.steps[at + chain.count];
        const Part& part = parts[at + chain.count];
        if (step.kind == StepCode::Kind::kNothing) continue;
        const bool is_small = step.kind == StepCode::Kind::kLaunch && step.launch.items == 1 &&
                              step.launch.threads == 0 && step.before.empty();
        const double nanoseconds =
            plan::nanoseconds_of(*code.plan, code.plan->steps[at + chain.count].step);
        std::set<size_t> all = bases;
        all.insert(part.bases.begin(), part.bases.end());
        if (!is_small || launches == kMostLaunches || all.size() > kMostBases ||
            chain.nanoseconds + nanoseconds > kLongestChain) {
          break;
        }
        ++launches;
        bases = std::move(all);
        calls += part.call;
        chain.nanoseconds += nanoseconds;
        chain.has_scratch = chain.has_scratch || step.has_scratch;
        chain.is_checked = step.is_checked;
      }
      const size_t first = std::exchange(at, at + std::max<size_t>(chain.count, 1));
      if (launches < 2) continue;
      chain.bases.assign(bases.begin(), bases.end());
      chain.kernel = chain_kernel(chain, calls);
      code.steps[first].chain = std::make_shared<const Chain>(std::move(chain));
    }
  }

  std::string chain_kernel(const Chain& chain, const std::string& calls) {
    std::vector<std::string> names;
    for (const size_t base : chain.bases) names.push_back(std::to_string(base));
    if (chain.has_scratch) names.push_back("_scratch");
    if (chain.is_checked) names.push_back("_report");
    std::string parameters;
    for (const std::string& name : names) {
      parameters += fmt::format("{}{}{}* m{}, const m_i64 o{}", parameters.empty() ? "" : ", ",
                                dialect().global, dialect().byte, name, name);
    }
    return named(kernel_names_, kernels_, "k", dialect().entry(0),
                 fmt::format("({}) {{\n{}}}\n", parameters, calls));
  }

  core::Result<StepCode> tile_loop(const Plan& plan, const PlannedStep& planned,
                                   const plan::LoopCall& call) {
    StepCode out;
    const Signature own = signature(plan, planned);
    MITHRIL_ASSIGN(const emit::CLoopUnits made,
                   emit::print_c_loop_units(call, own.names, cut(), definitions_));
    if (made.units > 0) {
      launch(out, own, made.body, made.units,
             made.threads > 0 ? std::min(made.units, options_.most_groups)
                              : items_of(plan, planned.step, made.units),
             {made.threads, made.shared});
    }
    return out;
  }

  static core::Error no_kernel(const FunctionCall& call) {
    core::Error error = core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                                   "the device's library finds no algorithm for {} of {}",
                                   call.name, short_name(plan::dtype_of(*call.product)));
    error.hint = "deterministic='portable' computes it in float32 by kernels";
    return error;
  }

  // A kernel does what is to be done with each element of the library's result.
  core::Result<StepCode> library_product(const Plan& plan, const PlannedStep& planned,
                                         const FunctionCall& call) {
    StepCode out;
    out.product = call.product;
    if (call.finish == nullptr || plan::finishes(*call.product)) return out;
    const Signature own = signature(plan, planned);
    MITHRIL_ASSIGN(const std::string finish, finishing(own, *call.finish));
    const std::string body = fmt::format(
        "{}#define M_FINISH(from, count) {}\n  M_FINISH(begin, end - begin);\n"
        "#undef M_FINISH\n",
        own.aliases, finish);
    const std::vector<int64_t>& sizes = call.finish->loop.kept;
    const int64_t units =
        std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    launch(out, own, body, units, items_of(plan, planned.step, units));
    return out;
  }

  core::Result<StepCode> function(const Plan& plan, const PlannedStep& planned,
                                  const FunctionCall& call, int64_t& own_bytes) {
    StepCode out;
    const plan::Step& step = planned.step;
    if (step.units == 0) return out;
    const bool is_long = options_.is_cpu && call.in_long_items.has_value();
    const FunctionCall::Phase phase =
        is_long        ? FunctionCall::Phase{call.in_long_items->call, call.in_long_items->units}
        : call.in_tile ? call.in_tile(options_.tile)
                       : FunctionCall::Phase{call.call, step.units, call.threads};
    const size_t scratch = is_long ? call.in_long_items->scratch_bytes : step.scratch_bytes;
    const int64_t units = phase.units;
    if (units == 0) return out;
    Signature own = signature(plan, planned);
    const int64_t items =
        phase.threads > 0 ? std::min(units, options_.most_groups) : items_of(plan, step, units);
    if (scratch > 0) own_bytes = add_scratch(own, out, static_cast<int64_t>(scratch), units, items);
    if (call.check != FunctionCall::Check::kNone) {
      MITHRIL_CHECK(call.check == FunctionCall::Check::kIndex, "{} looks for more", call.name);
      add_report(own, out);
      checked_.push_back({&plan, static_cast<size_t>(&planned - plan.steps.data()), call.bound});
    }
    const std::string is_same = fmt::format("  enum {{ is_updated_in_place = {} }};\n",
                                            step.partial_update && !own.aliases.empty() ? 1 : 0);
    std::string body =
        own.aliases + (step.partial_update ? is_same : "") + "  " + phase.call + "\n";
    definitions_.insert(call.texts.begin(), call.texts.end());
    if (call.finish != nullptr) {
      MITHRIL_ASSIGN(body, with_finish(std::move(body), own, *call.finish));
    }
    launch(out, own, std::move(body), units, items, {phase.threads, phase.shared});
    return out;
  }

  core::Result<StepCode> phases(const Plan& plan, const PlannedStep& planned,
                                const FunctionCall& call) {
    StepCode out;
    const std::vector<FunctionCall::Phase> all = call.in_phases(options_.tile);
    for (const FunctionCall::Phase& phase : all) {
      const bool is_last = &phase == &all.back();
      Signature own = signature(plan, planned, phase.operands);
      std::string body = own.aliases + "  " + phase.call + "\n";
      if (is_last && call.finish != nullptr) {
        MITHRIL_ASSIGN(body, with_finish(std::move(body), own, *call.finish));
      }
      int64_t items = phase.threads > 0 ? std::min(phase.units, options_.most_groups)
                                        : items_of(plan, planned.step, phase.units);
      if (phase.scratch_parts > 0) {
        items = std::min(items, phase.scratch_parts);
        add_parts(own, planned, phase, items);
      }
      launch(out, own, std::move(body), phase.units, items, {phase.threads, phase.shared});
      if (!is_last) out.before.push_back({out.kernel, out.launch, out.operands});
    }
    return out;
  }

  // A body with what its M_FINISH stands for.
  core::Result<std::string> with_finish(std::string body, const Signature& own,
                                        const plan::Finish& finish) {
    MITHRIL_ASSIGN(const std::string text, finishing(own, finish));
    return "#define M_FINISH(from, count) " + text + "\n" + std::move(body) + "#undef M_FINISH\n";
  }

  /// A call of a function that does elements of an epilogue: `count` of them from `from` on.
  core::Result<std::string> finishing(const Signature& own, const plan::Finish& finish) {
    std::vector<std::string> names;
    for (const size_t operand : finish.operands) names.push_back(own.names[operand]);
    MITHRIL_ASSIGN(const std::string body,
                   emit::print_c_loop_stretch(finish.loop, names, cut(), definitions_));
    const std::string function = named(
        function_names_, functions_, "f", std::string(dialect().function),
        fmt::format("({}const m_i64 from, const m_i64 count) {{\n{}}}\n\n", own.parameters, body));
    std::string arguments;
    for (const size_t operand : own.own) arguments += fmt::format("a{}, ", operand);
    return fmt::format("{}({}from, count)", function, arguments);
  }

  // Memory of each item's own; returns the bytes of all.
  int64_t add_scratch(Signature& own, StepCode& code, int64_t bytes, int64_t units,
                      int64_t items) const {
    const int64_t each = (units + items - 1) / items, room = rounded_up(bytes);
    const std::string type = fmt::format("{}{}*", dialect().global, dialect().byte);
    code.has_scratch = true;
    own.parameters += type + " scratch, ";
    own.entry_parameters += type + " m_scratch, const m_i64 o_scratch, ";
    own.arguments += fmt::format("m_scratch + o_scratch + begin / {} * {}, ", each, room);
    own.part.arguments += "m_scratch + o_scratch, ";
    return (units + each - 1) / each * room;
  }

  // A part of the workspace, the last operand, for each item.
  void add_parts(Signature& own, const PlannedStep& planned, const FunctionCall::Phase& phase,
                 int64_t items) const {
    const int64_t each = (phase.units + items - 1) / items;
    const std::string type = fmt::format("{}{}*", dialect().global, dialect().byte);
    own.parameters += type + " scratch, ";
    own.arguments +=
        fmt::format("({0})(m{1} + o{1}) + {2} + begin / {3} * {4}, ", type,
                    planned.operands.size() - 1, phase.scratch_at, each, phase.scratch_bytes);
  }

  void add_report(Signature& own, StepCode& code) const {
    const std::string_view global = dialect().global;
    code.is_checked = true;
    own.parameters += fmt::format("{}m_i64* report, const m_i64 step, ", global);
    own.entry_parameters +=
        fmt::format("{}{}* m_report, const m_i64 o_report, ", global, dialect().byte);
    const std::string arguments =
        fmt::format("({}m_i64*)(m_report + o_report), {}, ", global, checked_.size());
    own.arguments += arguments;
    own.part.arguments += arguments;
  }

  // Prints the definitions that functions stand on, and no more.
  std::string head() const {
    std::string definitions;
    for (const std::string& text : definitions_) definitions += text;
    std::string all = options_.prelude();
    all += emit::kExternLanes;
    all += "M_TRIG(f32)\nM_TRIG(f64)\n";
    all += emit::kPlanHead;
    all += kReportHead;
    if (options_.is_vectored) all += std::string(emit::kVectorHead) + kVectorProducts;
    return emit::prune_c(all, definitions + functions_) + definitions + "\n";
  }

  const PrintOptions& options_;
  std::set<std::string> definitions_;
  std::map<std::string, std::string> function_names_, kernel_names_;  // by text
  std::string functions_, kernels_;
  Part part_;  // the last step
  std::vector<CheckedStep> checked_;
  int64_t host_steps_ = 0;
};

}  // namespace

core::Result<Source> print_plan(const plan::Plan& plan, const PrintOptions& options) {
  return Printer(options).run(plan);
}

}  // namespace mithril::device
