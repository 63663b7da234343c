// Loops along long rows for devices whose threads meet: a block of threads for each row, a work
// group in the words of OpenCL.
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

  /// Tells whether rows are long, all that is reduced runs in lanes, and the memory that threads
  /// share holds it.
  bool fits() const;

  /// Prints what units() of the printer does, and says what threads share.
  CLoopUnits block_units(std::set<std::string>& definitions);

 private:
  void define(const tile::Instruction& i, std::set<std::string>& definitions) const override;
  void statement(tile::RegId r) override;
  void section(int32_t s) override;

  std::vector<plan::SharedArray> shared(tile::RegId r) const;
  int64_t blocks() const;
  std::string function(tile::RegId r) const;
  void share_elements(const std::vector<bool>& lanes, const std::vector<tile::RegId>& states);
  void places_in_row();
};

}  // namespace mithril::emit
