// Loops along long rows for devices whose threads meet: a block of threads for each row, in the
// words of CUDA C.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "emit/c_loop_printer.h"

namespace mithril::emit {

/// Prints a unit for each row. The threads share its elements; sixteen of them add up, each one
/// lane of the canonical order, and the first joins lanes and blocks.
class CBlockLoop final : public CLoopPrinter {
 public:
  CBlockLoop(const plan::LoopCall& loop, std::span<const std::string> operands,
             const CLoopCut& cut);

  /// Tells whether rows are long, and all that is reduced runs in lanes.
  bool fits() const;

 private:
  void define(const tile::Instruction& i, std::set<std::string>& definitions) const override;
  void statement(tile::RegId r) override;
  void section(int32_t s) override;

  void declare(tile::RegId r);
  void share_elements(const std::vector<bool>& lanes, const std::vector<tile::RegId>& states);
  void places_in_row();
};

}  // namespace mithril::emit
