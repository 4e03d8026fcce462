// How many layers each stage of a pipeline holds, so that all take about as long.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// What consecutive items cost, in any measure; the first and the last stage have more to do.
struct SplitCosts {
  std::vector<double> items;
  double first = 0, last = 0;
};

/// How many consecutive items each stage takes, so that the largest sum is least and, among those
/// splits, the sums are most alike. Each takes one at least, the last `least_of_last`.
std::vector<int64_t> split_evenly(const SplitCosts& costs, int stages, int64_t least_of_last = 1);

/// Of each layer, with the embedding first and the head last: operations of a forward pass for a
/// token of a sequence of `length`.
SplitCosts stage_operations(const ModelConfig& config, int64_t length);
/// The same in elements of the parameters. A tied head counts, since its stage holds a copy.
SplitCosts stage_elements(const ModelConfig& config);

}  // namespace lockstep::model
