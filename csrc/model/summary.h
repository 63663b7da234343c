// The rows of the tables that `Model.summary` prints.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"

namespace mithril::model {

struct SummaryOptions {
  bool symbolic = false;  // u1 and (V1, ...) instead of None and ...
  int depth = 0;          // levels of submodels with tables of their own
  std::string title;      // "" = name or class of the model
};

struct SummaryRow {
  std::string key;
  bool is_output = false;
  std::optional<std::vector<std::string>> shape;  // of tensors
  std::string type;
  std::vector<std::string> connections;  // "'x'", "'$weight'", "Linear_0.output", a value
};

struct SummaryBlock {
  std::string name;              // unique name of the submodel
  std::vector<SummaryRow> rows;  // inputs, then outputs
};

struct SummaryTable {
  std::string title;
  std::vector<SummaryBlock> blocks;  // submodels in topological order
};

/// The model's table, then (depth > 0) those of its submodels, level by level.
std::vector<SummaryTable> summarize(const Model& model, const SummaryOptions& options = {});

}  // namespace mithril::model
