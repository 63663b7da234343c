// Loops for CPUs that are programmed in OpenCL C. Their compilers make vectors of the loops over
// elements, so what would keep them from it stands apart: lookups, rare cases, and stores past the
// caches, each with memory of its own for a chunk of elements.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "emit/c_loop_printer.h"

namespace mithril::emit {

/// Prints units on what c_vector_text.h defines.
class CVectorLoop final : public CLoopPrinter {
 public:
  CVectorLoop(const plan::LoopCall& loop, std::span<const std::string> operands,
              const CLoopCut& cut);

 private:
  using Lanes = std::vector<bool>;  // by register

  void define(const tile::Instruction& i, std::set<std::string>& definitions) const override;
  std::string expression(const tile::Instruction& i) const override;
  void statement(tile::RegId r) override;
  void elements() override;
  void section(int32_t s) override;
  bool computes(tile::RegId r) const override { return !looked_up_[r] && !is_kept_now_[r]; }

  bool is_far(const tile::Instruction& i) const;
  bool has_stages() const;
  void open_chunks(const std::string& begin, const std::string& end, int64_t size);
  void open_elements();
  void declare(const char* prefix, size_t number, core::DType dtype, int64_t count);
  Lanes roots_and_needed(const Wanted& is_root) const;
  void print_lanes(const Wanted& is_root);

  Lanes lookups_of(const Lanes& lanes, int& stages) const;
  void look_up(const Wanted& is_root);

  bool is_streamed(const tile::Instruction& store) const;
  void choose_buffered(const Wanted& is_root);
  void take_out();
  void do_rare_ones();

  bool is_chunked() const;
  int32_t last_section() const;
  Wanted roots_of(int32_t s) const;
  int64_t cost_of(tile::RegId r) const;
  void choose_kept();

  tile::Program exact_;  // the program with its rare cases in it
  std::string place_;    // the name of the place along the chunks
  bool has_rare_ = false;
  std::vector<bool> buffered_;  // outputs that lie in y0, y1 … first
  Lanes looked_up_;             // lookups that are done: l7 …
  Lanes kept_lanes_;            // that later sections need: they stay in kept7 … for a row
  Lanes is_kept_now_;
};

}  // namespace mithril::emit
