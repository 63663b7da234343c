// How loops of a plan become text of C-like languages: what the printers of c_loop.h share.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emit/c_loop.h"
#include "emit/indented_text.h"
#include "plan/call.h"
#include "tile/expand.h"

namespace mithril::emit {

/// Dims that are walked together: sizes, and by operand the strides.
struct CLoopDims {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;
  size_t rank() const { return sizes.size(); }
  bool is_empty() const {
    for (const int64_t size : sizes) {
      if (size == 0) return true;
    }
    return false;
  }
};

/// Prints one loop. Registers are constants v0, v1 …; places are k0, k1 … of the kept dims and r0,
/// r1 … of the reduced ones, with the fewest dims that the strides allow.
class CLoopPrinter : protected IndentedText {
 public:
  CLoopPrinter(const plan::LoopCall& loop, std::span<const std::string> operands, bool parallel,
               const CLoopCut& cut = {}, tile::Expansion expansion = {.scale = false});
  virtual ~CLoopPrinter() = default;

  std::string run(std::set<std::string>& definitions);
  CLoopUnits units(std::set<std::string>& definitions);
  /// Elements [from, from + count), without rows.
  std::string stretch(std::set<std::string>& definitions);

 protected:
  using Wanted = std::function<bool(tile::RegId)>;

  bool has_rows() const;
  const tile::Instruction& at(tile::RegId r) const;
  size_t operand_of(const tile::Instruction& i) const;

  /// Prints what must stand before the loop of a reduction.
  virtual void define(const tile::Instruction& i, std::set<std::string>& definitions) const;

  std::string index(size_t operand) const;
  std::string number_in_row() const;
  int64_t row_length() const;

  std::string name(tile::RegId r) const;
  virtual std::string expression(const tile::Instruction& i) const;
  virtual void statement(tile::RegId r);
  void statements(const Wanted& wanted);
  bool any(const Wanted& wanted) const;
  void uniforms();

  /// The elements of a unit without rows: [first, last) of the last kept dim.
  virtual void elements();
  void row_statements(const Wanted& wanted);
  /// Row values, one pass over the lanes, the reductions' results, row outputs.
  virtual void section(int32_t s);
  /// Lane values that a section computes, anew if an earlier one has.
  std::vector<bool> needed_lanes(const Wanted& is_root) const;
  /// Tells whether a lane value is computed where it is needed; else it lies in memory.
  virtual bool computes(tile::RegId /*r*/) const { return true; }

  std::string state(tile::RegId r) const;
  void begin(tile::RegId r);
  void take(tile::RegId r);
  void finish(tile::RegId r);

  tile::Program program_;
  std::vector<int32_t> section_;
  std::span<const std::string> operands_;
  bool parallel_;
  CLoopCut cut_;
  CLoopDims kept_, reduced_;
  std::vector<std::string> places_;  // of the kept dims
  bool across_ = false;
  bool is_stretch_ = false;  // of the last dim any part may be done, not pieces alone

 private:
  static std::vector<std::vector<int64_t>> along_rows(const plan::LoopCall& loop);
  void define(std::set<std::string>& definitions) const;
  void open_loop(std::string_view variable, int64_t size);
  static void add_term(std::string& text, const std::string& place, int64_t stride);
  static std::string number(const CLoopDims& dims, const std::vector<std::string>& places);
  std::string row_number() const;
  bool is_column(tile::RegId r) const;
  void flat();
  bool goes_across() const;
  void rows();
  void sections();
  void open_columns();
  void columns(int64_t size);
  int64_t open_units(int64_t piece);
  void outer_places(const char* number, int64_t below, size_t dims);
  void open_lanes(const std::vector<bool>& needed, const std::vector<tile::RegId>& states);
  void open_row(const std::vector<tile::RegId>& states, int64_t size);
  void close_lanes(const std::vector<tile::RegId>& states);
  static int width(const tile::Instruction& i);

  bool is_open_ = false;  // a loop that threads share
};

}  // namespace mithril::emit
