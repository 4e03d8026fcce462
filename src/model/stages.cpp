// Implements a balanced partition of layers into pipeline stages.
#include "model/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "model/description.h"
#include "model/operations.h"

namespace lockstep::model {

std::vector<int64_t> split_evenly(const SplitCosts& costs, int stages, int64_t least_of_last) {
  using Score = std::pair<double, double>;
  const auto items = static_cast<int>(costs.items.size());
  std::vector<double> before(static_cast<size_t>(items) + 1, 0);
  std::partial_sum(costs.items.begin(), costs.items.end(), before.begin() + 1);
  const auto cost = [&](int stage, int begin, int end) {
    return before[static_cast<size_t>(end)] - before[static_cast<size_t>(begin)] +
           (stage == 0 ? costs.first : 0) + (stage + 1 == stages ? costs.last : 0);
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[s][l]: best score of the first s stages with the first l items. from[s][l]: first item of
  // stage s - 1 in that partition.
  const std::vector<Score> row(static_cast<size_t>(items) + 1, {kNever, kNever});
  std::vector<std::vector<Score>> best(static_cast<size_t>(stages) + 1, row);
  std::vector<std::vector<int>> from(
      static_cast<size_t>(stages) + 1, std::vector<int>(static_cast<size_t>(items) + 1, 0));
  best[0][0] = {0, 0};
  for (int s = 1; s <= stages; ++s) {
    const int least = s == stages ? static_cast<int>(least_of_last) : 1;
    for (int end = 0; end <= items; ++end) {
      for (int begin = 0; begin + least <= end; ++begin) {
        const double own = cost(s - 1, begin, end);
        const Score& rest = best[static_cast<size_t>(s) - 1][static_cast<size_t>(begin)];
        const Score score{std::max(rest.first, own), rest.second + own * own};
        if (score < best[static_cast<size_t>(s)][static_cast<size_t>(end)]) {
          best[static_cast<size_t>(s)][static_cast<size_t>(end)] = score;
          from[static_cast<size_t>(s)][static_cast<size_t>(end)] = begin;
        }
      }
    }
  }
  std::vector<int64_t> result(static_cast<size_t>(stages));
  for (int s = stages, end = items; s > 0; --s) {
    const int begin = from[static_cast<size_t>(s)][static_cast<size_t>(end)];
    result[static_cast<size_t>(s) - 1] = end - begin;
    end = begin;
  }
  return result;
}

SplitCosts stage_operations(const ModelConfig& config, int64_t length) {
  SplitCosts costs;
  // Embedding rows are copied and their gradients accumulated, a few operations per element.
  constexpr double kOperationsAnElement = 4;
  costs.first = kOperationsAnElement * static_cast<double>(config.hidden_size);
  costs.last = operations_per_token(config, length).head;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    costs.items.push_back(layer_operations(config, layer, length).forward());
  }
  return costs;
}

SplitCosts stage_elements(const ModelConfig& config) {
  SplitCosts costs;
  costs.items.assign(static_cast<size_t>(config.layers), 0);
  for (const ParameterSpec& parameter : parameters_of(config)) {
    const auto count = static_cast<double>(parameter.elements());
    (parameter.unit == 0               ? costs.first
     : parameter.unit <= config.layers ? costs.items[static_cast<size_t>(parameter.unit) - 1]
                                       : costs.last) += count;
    if (config.ties_head() && parameter.name == embedding_name(config)) {
      costs.last += count;
    }
  }
  return costs;
}

}  // namespace lockstep::model
