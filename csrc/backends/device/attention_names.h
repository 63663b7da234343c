// Names that the texts of attention have for a node: for its operands, sizes and results.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "backends/device/kernel_families.h"
#include "select/attention_sizes.h"

namespace mithril::device {

/// Fills the texts of one node. Numbers are of the type that it computes in: float32 for halves.
class AttentionNames {
 public:
  explicit AttentionNames(const KernelRequest& request);
  AttentionNames(const AttentionNames&) = delete;  // names_ views what is kept
  AttentionNames& operator=(const AttentionNames&) = delete;

  const select::AttentionSizes& sizes() const { return sizes_; }
  std::string fill(std::string text) const { return filled(std::move(text), names_); }
  int64_t batches() const;

 private:
  select::AttentionSizes sizes_;
  std::vector<std::string> kept_;
  Names names_;
};

/// A step of so many multiply-adds for each score.
plan::Step attention_step(const AttentionNames& names, FunctionCall call, int64_t units,
                          int64_t products);

bool has_elements(const Operand& operand);
/// Tells whether keys are worth streaming past rows: below, loops and products of what it stands
/// for have less to set up, as on the engine's CPU. `widest`: most features of keys and of values.
bool is_worth_streaming(const select::AttentionSizes& sizes, int64_t widest);
/// Tells the same of what gradients are made of.
bool has_many_queries(const select::AttentionSizes& sizes);

}  // namespace mithril::device
