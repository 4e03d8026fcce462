// Balanced number of layers per pipeline stage.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Costs of consecutive items, in any unit, and additional costs of the first and last stage.
struct SplitCosts {
  std::vector<double> items;
  double first = 0, last = 0;
};

/// Returns the number of consecutive items per stage. Minimizes the largest stage cost and then the
/// variation of the costs. Each stage gets at least one item, and the last stage at least
/// `least_of_last`.
std::vector<int64_t> split_evenly(const SplitCosts& costs, int stages, int64_t least_of_last = 1);

/// Returns the forward operations per token of each layer and of embedding and head, for sequences
/// of `length` tokens.
SplitCosts stage_operations(const ModelConfig& config, int64_t length);
/// Variant that returns the number of parameter elements. A tied head counts because its stage has
/// a copy.
SplitCosts stage_elements(const ModelConfig& config);

}  // namespace lockstep::model
