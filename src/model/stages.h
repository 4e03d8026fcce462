// Number of layers per pipeline stage, balanced by cost.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Costs of consecutive items in any unit, with additional costs of the first and the last stage.
struct SplitCosts {
  std::vector<double> items;
  double first = 0, last = 0;
};

/// Returns the number of consecutive items per stage that minimizes the largest sum and, among
/// those partitions, the variation of the sums. Each stage gets at least one item, the last at
/// least `least_of_last`.
std::vector<int64_t> split_evenly(const SplitCosts& costs, int stages, int64_t least_of_last = 1);

/// Forward operations per token of each layer, including the embedding and the head, for sequences
/// of `length` tokens.
SplitCosts stage_operations(const ModelConfig& config, int64_t length);
/// The same, measured in parameter elements. A tied head counts, since its stage has a copy.
SplitCosts stage_elements(const ModelConfig& config);

}  // namespace lockstep::model
