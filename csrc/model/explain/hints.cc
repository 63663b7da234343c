// Fixes that are known for clashes of shapes and kinds: swapped axes, a missing flatten, another
// wire that was meant, a cast.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>

#include "core/checked.h"
#include "model/explain/explain.h"

namespace mithril::model {
namespace {

using infer::CellId;
using infer::Conflict;

using Sizes = std::vector<std::optional<int64_t>>;

/// "[10, none, 3]" as text of `said` or of a side -> sizes; names are open.
std::optional<Sizes> parse(const std::string& text) {
  if (text.size() < 2 || text.front() != '[' || text.find("...") != std::string::npos) {
    return std::nullopt;
  }
  Sizes out;
  std::string item;
  for (const char c : text.substr(1)) {
    if (c != ',' && c != ']') {
      if (c != ' ') item += c;
      continue;
    }
    if (item.empty()) continue;
    const bool number =
        std::all_of(item.begin(), item.end(), [](unsigned char d) { return std::isdigit(d) != 0; });
    constexpr size_t kMostDigits = 18;
    const bool known = number && item.size() <= kMostDigits;
    out.push_back(known ? std::optional<int64_t>(std::stoll(item)) : std::nullopt);
    item.clear();
  }
  return out;
}

/// Every size that is wanted is there.
bool fit(const Sizes& given, const Sizes& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] && given[i] != wanted[i]) return false;
  }
  return true;
}

std::string print(const Sizes& sizes, const Sizes& names) {
  std::string out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto size = sizes[i] ? sizes[i] : names[i];
    out += (i == 0 ? "" : ", ") + (size ? std::to_string(*size) : std::string("None"));
  }
  return "[" + out + "]";
}

/// The product of all sizes from an axis on, where it is known and fits.
std::optional<int64_t> elements(const Sizes& sizes, size_t first_axis) {
  std::optional<int64_t> product = 1;
  for (size_t axis = first_axis; axis < sizes.size() && product; ++axis) {
    product = sizes[axis] ? core::checked_mul(*product, *sizes[axis]) : std::nullopt;
  }
  return product;
}

/// An order of axes in which `given` is `wanted`.
std::optional<std::vector<size_t>> order_that_fits(const Sizes& given, const Sizes& wanted) {
  constexpr size_t kMostAxes = 5;
  if (given.size() != wanted.size() || given.size() < 2 || given.size() > kMostAxes) return {};
  std::vector<size_t> order(given.size());
  std::iota(order.begin(), order.end(), 0);
  while (std::next_permutation(order.begin(), order.end())) {
    Sizes moved;
    for (const size_t axis : order) moved.push_back(given[axis]);
    if (fit(moved, wanted)) return order;
  }
  return std::nullopt;
}

class Hints {
 public:
  Hints(const ModelTree& tree, infer::Solver& solver, const FailedCall& call,
        const std::vector<Conflict::Side>& sides)
      : tree_(tree), solver_(solver), call_(call), conflict_(solver.conflict()), sides_(sides) {}

  std::string find(const core::Error& error) const {
    if (error.kind == core::ErrorKind::kDType) {
      const std::string text = cast();
      return text.empty() ? contradiction(error) : text;
    }
    if (error.code == core::Code::kValueAxis) return axes();
    if (error.kind == core::ErrorKind::kValue) return allowed(error);
    if (error.kind != core::ErrorKind::kShape) return "";
    for (const auto hint :
         {&Hints::swapped_statement, &Hints::swapped_wire, &Hints::allowed, &Hints::lacks_last_axis,
          &Hints::flatten, &Hints::other_wire, &Hints::transposed_operand, &Hints::lined_up,
          &Hints::element_count, &Hints::contradiction, &Hints::channels_last}) {
      std::string text = (this->*hint)(error);
      if (!text.empty()) return text;
    }
    return "";
  }

 private:
  const Conflict::Side* side(size_t i) const { return i < sides_.size() ? &sides_[i] : nullptr; }

  // set_shapes(w=[16, 10]) where w is [10, 16].
  std::string swapped_statement(const core::Error&) const {
    if (conflict_.said.empty() || conflict_.sides.empty()) return "";
    const auto given = parse(conflict_.said), wanted = parse(conflict_.sides[0].text);
    const bool plain = given && wanted && given->size() == wanted->size();
    if (!plain || fit(*given, *wanted)) return "";
    const auto order = order_that_fits(*given, *wanted);
    if (!order) return "";
    Sizes moved;
    for (const size_t axis : *order) moved.push_back((*given)[axis]);
    return fmt::format("the axes of '{}' are in another order: did you mean {}?",
                       solver_.name(conflict_.about), print(moved, *wanted));
  }

  // linear: d_in is 16 by the input, and the weight is [16, 10].
  std::string swapped_wire(const core::Error&) const {
    if (conflict_.sizes.size() != 2 || conflict_.size_name.empty()) return "";
    for (size_t i = 0; i < 2; ++i) {
      const Conflict::Side* at = side(i);
      const auto shape = at == nullptr ? std::nullopt : parse(at->text);
      const int64_t wanted = conflict_.sizes[1 - i];
      if (!shape || shape->size() != 2) continue;
      const bool has_both = ((*shape)[0] == wanted && (*shape)[1] == conflict_.sizes[i]) ||
                            ((*shape)[1] == wanted && (*shape)[0] == conflict_.sizes[i]);
      if (!has_both || !is_parameter(at->cell)) continue;
      return fmt::format("'{}' looks transposed: give it as [{}, {}]", at->name,
                         to_text((*shape)[1]), to_text((*shape)[0]));
    }
    return "";
  }

  bool is_parameter(CellId cell) const {
    const NodeId leaf = leaf_of_rule();
    if (leaf == kNone) return false;
    const ConnId key = key_of_cell(tree_, solver_, leaf, cell);
    return key != kNone && tree_.edge_of(key).trainable;
  }

  static std::string to_text(const std::optional<int64_t>& size) {
    return size ? std::to_string(*size) : "None";
  }

  NodeId leaf_of_rule() const {
    if (!conflict_.rule.valid()) return kNone;
    return Narrator(tree_, solver_).speaker(conflict_.rule).leaf;
  }

  // 9, where a size lies in [1, 8].
  std::string allowed(const core::Error&) const {
    const Conflict::Refused& refused = conflict_.refused;
    if (refused.allowed.empty()) return "";
    const bool is_range = std::isalpha(static_cast<unsigned char>(refused.allowed.front())) != 0;
    return fmt::format("in place of {} give {}{}", refused.got, is_range ? "a number " : "",
                       refused.allowed);
  }

  // A vector [3] where a matrix [3, u1] is taken.
  std::string lacks_last_axis(const core::Error&) const {
    if (conflict_.said.empty() || conflict_.sides.empty()) return "";
    const auto given = parse(conflict_.said), wanted = parse(conflict_.sides[0].text);
    const bool one_less = given && wanted && given->size() + 1 == wanted->size();
    if (!one_less || given->empty() || wanted->back()) return "";
    Sizes column = *given;
    const bool is_image = has_channels(leaf_of_facts());
    column.insert(is_image ? column.begin() + 1 : column.end(), 1);
    if (!fit(column, *wanted)) return "";
    return fmt::format("'{}' lacks its {} is {}", solver_.name(conflict_.about),
                       is_image ? "axis of channels: one channel" : "last axis: one column",
                       print(column, column));
  }

  // Whose input is [N, channels, …].
  bool has_channels(NodeId leaf) const {
    const ir::OpDef* op = leaf == kNone ? nullptr : tree_.node(leaf).op;
    return op != nullptr &&
           (op->name.starts_with("convolution") || op->name.find("pool") != std::string::npos);
  }

  // Which said what is known of the first side.
  NodeId leaf_of_facts() const {
    if (side(0) == nullptr || side(0)->facts.empty()) return kNone;
    return Narrator(tree_, solver_).speaker(side(0)->facts.front()).leaf;
  }

  bool is_flatten(NodeId leaf) const {
    const ir::OpDef* op = leaf == kNone ? nullptr : tree_.node(leaf).op;
    return op != nullptr && op->name == "flatten";
  }

  // images of [N, 8, 5, 5] into a layer that is 200 wide, or a result that has too many axes.
  std::string flatten(const core::Error&) const {
    if (is_flatten(leaf_of_rule()) || is_flatten(leaf_of_facts())) return first_axis_of_flatten();
    for (size_t i = 0; i < sides_.size(); ++i) {
      const auto shape = parse(side(i)->text);
      if (!shape || shape->size() < 3) continue;
      const bool statement =
          !conflict_.said.empty() && parse(conflict_.said) && parse(conflict_.said)->size() == 2;
      const int64_t product = elements(*shape, 1).value_or(0);
      const bool width = conflict_.sizes.size() == 2 && product != 0 &&
                         (product == conflict_.sizes[0] || product == conflict_.sizes[1]);
      if (statement || width) {
        return fmt::format("'{}' has {} axes: put ml.Flatten(start_dim=1) before the layer",
                           side(i)->name, shape->size());
      }
    }
    return "";
  }

  // One axis, or none, into ml.Flatten().
  std::string first_axis_of_flatten() const {
    std::vector<std::string> texts = {conflict_.said};
    for (const Conflict::Side& at : sides_) {
      if (at.name == "start_dim" && at.text != "1") return "";
      texts.push_back(at.text);
    }
    const auto is_short = [](const std::string& text) {
      const auto shape = parse(text);
      return shape && shape->size() < 2;
    };
    if (std::none_of(texts.begin(), texts.end(), is_short)) return "";
    return "Flatten keeps the first axis, for start_dim is 1 by default: ml.Flatten(start_dim=0)"
           " merges all axes, and takes one or none";
  }

  // Another wire of the model has the size that is wanted.
  std::string other_wire(const core::Error&) const {
    if (conflict_.sizes.size() != 2 || call_.child == kNone || call_.model == kNone) return "";
    for (const Conflict::Side& at : sides_) {
      const ConnId key = key_of_cell(tree_, solver_, call_.child, at.cell);
      const auto width = last_size(at.cell);
      if (key == kNone || tree_.conn(key).produced() || tree_.edge_of(key).trainable) continue;
      if (!width || (*width != conflict_.sizes[0] && *width != conflict_.sizes[1])) continue;
      const int64_t wanted = conflict_.sizes[*width == conflict_.sizes[0] ? 1 : 0];
      const std::string found = wire_of_width(wanted);
      if (!found.empty()) return fmt::format("did you mean {}=\"{}\"?", tree_.key(key), found);
    }
    return "";
  }

  std::optional<int64_t> last_size(CellId cell) const {
    if (!cell.valid() || !solver_.kinds(cell).is_tensor()) return std::nullopt;
    const infer::ShapeView view = solver_.shape_view(cell);
    const auto& part = view.variadic ? view.suffix : view.prefix;
    if (part.empty() || !part.back().known()) return std::nullopt;
    return part.back().value();
  }

  std::string wire_of_width(int64_t width) const {
    for (const ConnId c : tree_.node(call_.model).conns) {
      const Edge& edge = tree_.edge_of(c);
      const bool named = !tree_.conn(c).name.empty() && tree_.conn(c).merged == kNone;
      if (!named || edge.trainable || tree_.is_valued(c) || !written_by_another(c)) continue;
      const bool read_before = tree_.conn(c).first_consumer == kNone ||
                               tree_.conn(tree_.conn(c).first_consumer).node != call_.child;
      if (read_before && last_size(edge.cell) == width) return tree_.conn(c).name;
    }
    return "";
  }

  bool written_by_another(ConnId c) const {
    const ConnId producer = tree_.conn(c).producer;
    return producer == kNone || tree_.conn(producer).node != call_.child;
  }

  // matmul of [5, 3] and [4, 3].
  std::string transposed_operand(const core::Error& error) const {
    if (error.code != core::Code::kShapeInner || side(1) == nullptr) return "";
    const auto left = parse(side(0)->text), right = parse(side(1)->text);
    if (!left || !right || left->empty() || right->size() < 2) return "";
    if (!left->back() || left->back() != right->back()) return "";
    return fmt::format("the last axes agree: multiply by the transposed '{}'", side(1)->name);
  }

  // [5, 3] + [5]: shapes are lined up at the right.
  std::string lined_up(const core::Error& error) const {
    if (error.code != core::Code::kShapeBroadcast || side(1) == nullptr) return "";
    auto left = parse(side(0)->text), right = parse(side(1)->text);
    if (!left || !right || left->size() == right->size()) return "";
    const size_t low = left->size() < right->size() ? 0 : 1;
    const Sizes& wide = low == 0 ? *right : *left;
    Sizes narrow = low == 0 ? *left : *right;
    while (narrow.size() < wide.size()) narrow.push_back(1);
    for (size_t i = 0; i < wide.size(); ++i) {
      const bool ok = !wide[i] || !narrow[i] || wide[i] == narrow[i] || narrow[i] == 1;
      if (!ok) return "";
    }
    return fmt::format("axes are lined up at the right: give '{}' axes of size 1, {}",
                       side(low)->name, print(narrow, narrow));
  }

  std::string element_count(const core::Error& error) const {
    if (error.code != core::Code::kShapeElementCount) return "";
    for (const Conflict::Side& at : sides_) {
      const NodeId leaf = leaf_of_rule();
      const ConnId key = leaf == kNone ? kNone : key_of_cell(tree_, solver_, leaf, at.cell);
      const auto shape = parse(at.text);
      if (key == kNone || tree_.conn(key).produced() || !shape) continue;
      const auto product = elements(*shape, 0);
      if (!product) return "";
      return fmt::format(
          "'{}' has {} elements: the sizes must multiply to {}, and one of them may"
          " be -1",
          at.name, *product, *product);
    }
    return "";
  }

  // Two statements of one wire, or one that a layer does not allow.
  std::string contradiction(const core::Error&) const {
    if (conflict_.said.empty() || conflict_.sides.empty() || side(0) == nullptr) return "";
    const Conflict::Side& known = conflict_.sides[0];
    if (side(0)->cell != known.cell) {
      return fmt::format("to go with '{}', '{}' must be {}", side(0)->name, known.name, known.text);
    }
    if (side(0)->facts.empty()) return "";
    const Speaker from = Narrator(tree_, solver_).speaker(side(0)->facts.front());
    const std::string place = core::to_string(from.where);
    if (place.empty() || from.by.empty()) return "";
    return fmt::format("'{}' is {} by {}: state that here, or change {}", known.name, known.text,
                       from.by, place);
  }

  std::string channels_last(const core::Error&) const {
    const NodeId leaf = leaf_of_rule();
    if (leaf == kNone || side(0) == nullptr) return "";
    const ir::OpDef* op = tree_.node(leaf).op;
    const bool window = op != nullptr && (op->name.starts_with("convolution2d") ||
                                          op->name.find("pool2d") != std::string::npos);
    if (!window) return "";
    for (const Conflict::Side& at : sides_) {
      const ConnId key = key_of_cell(tree_, solver_, leaf, at.cell);
      if (key == kNone || tree_.key(key) != "input") continue;
      const auto shape = parse(at.text);
      if (!shape || shape->size() != 4 || !shape->back() || *shape->back() > 4) continue;
      if (!(*shape)[1] || *(*shape)[1] <= *shape->back()) continue;
      return fmt::format(
          "images are [N, channels, height, width]: '{}' looks like [N, height, "
          "width, channels], transpose it by (0, 3, 1, 2)",
          at.name);
    }
    return "";
  }

  std::string axes() const {
    for (const Conflict::Side& at : sides_) {
      const auto shape = parse(at.text);
      if (!shape || shape->empty()) continue;
      return fmt::format("the axes of '{}' are -{} to {}", at.name, shape->size(),
                         shape->size() - 1);
    }
    return "";
  }

  std::string cast() const {
    const NodeId leaf = leaf_of_rule();
    const Conflict::Side* at = side(0);
    if (at == nullptr) return "";
    const infer::KindSet kinds = solver_.kinds(at->cell);
    if (leaf != kNone && kinds == infer::kTensorInt) {
      return fmt::format("cast it: ml.Cast(dtype=ml.float32)(input=\"{}\", ...)", at->name);
    }
    return "";
  }

  const ModelTree& tree_;
  infer::Solver& solver_;
  const FailedCall& call_;
  const Conflict& conflict_;
  const std::vector<Conflict::Side>& sides_;
};

}  // namespace

std::string hint_for(const core::Error& error, const ModelTree& tree, infer::Solver& solver,
                     const FailedCall& call, const std::vector<Conflict::Side>& sides) {
  return Hints(tree, solver, call, sides).find(error);
}

}  // namespace mithril::model
