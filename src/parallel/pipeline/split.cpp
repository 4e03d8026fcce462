#include "parallel/pipeline/split.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "model/operations.h"
#include "model/parameters.h"

namespace lockstep::parallel {
namespace {

SplitCosts operations(const model::ModelConfig& config, int64_t length) {
  SplitCosts costs;
  // Rows are copied, and their gradients added: a few operations an element.
  constexpr double kOperationsAnElement = 4;
  costs.first = kOperationsAnElement * static_cast<double>(config.hidden_size);
  costs.last = model::operations_per_token(config, length).head;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    costs.items.push_back(model::layer_operations(config, layer, length).forward());
  }
  return costs;
}

SplitCosts elements(const model::ModelConfig& config) {
  SplitCosts costs;
  costs.items.assign(static_cast<size_t>(config.layers), 0);
  for (const model::ParameterSpec& parameter : model::parameters_of(config)) {
    const auto count = static_cast<double>(parameter.elements());
    (parameter.unit == 0               ? costs.first
     : parameter.unit <= config.layers ? costs.items[static_cast<size_t>(parameter.unit) - 1]
                                       : costs.last) += count;
    if (config.tie_word_embeddings && parameter.name == model::embedding_name(config)) {
      costs.last += count;
    }
  }
  return costs;
}

[[noreturn]] void fail(const std::string& message, const std::string& remedy) {
  throw Error(ErrorKind::kConfig, message, remedy);
}

}  // namespace

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
  // best[s][l]: of the first s stages over the first l items; from[s][l]: where stage s - 1 begins.
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

std::vector<int64_t> parse_split(
    const std::string& text, int64_t total, int stages, const std::string& item) {
  std::vector<int64_t> counts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc() || end != text.data() + comma || value < 0) {
      fail(
          fmt::format("parallel.split: '{}' is no list of {}s", text, item),
          fmt::format("write auto, parameters, or the {}s of each stage: 3,4,4,1", item));
    }
    counts.push_back(value);
    at = comma + 1;
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (counts.size() != static_cast<size_t>(stages) || sum != total) {
    fail(
        fmt::format(
            "parallel.split={} gives {} {}s to {} stages, and the model has {} {}s and the "
            "pipeline {} stages",
            text,
            sum,
            item,
            counts.size(),
            total,
            item,
            stages),
        fmt::format("name the {}s of each stage in order, virtual stages too, or use auto", item));
  }
  for (size_t stage = 1; stage + 1 < counts.size(); ++stage) {
    if (counts[stage] == 0) {
      fail(
          fmt::format("parallel.split={} leaves stage {} nothing to do", text, stage),
          fmt::format("only the first and the last stage may be without a {}", item));
    }
  }
  return counts;
}

std::vector<nn::ModelPart> split_model(
    const model::ModelConfig& config, const SplitRequest& request) {
  std::vector<int64_t> layers;
  if (request.split != "auto" && request.split != "parameters") {
    layers = parse_split(request.split, config.layers, request.stages, "layer");
  } else if (request.stages > config.layers) {
    fail(
        fmt::format("{} pipeline stages for a model of {} layers", request.stages, config.layers),
        "use fewer of parallel.pipeline times the stages of a rank (parallel.virtual_stages; 2 of "
        "zb-v)");
  } else {
    layers = split_evenly(
        request.split == "auto" ? operations(config, request.sequence_length) : elements(config),
        request.stages,
        /*least_of_last=*/0);
  }
  std::vector<nn::ModelPart> parts;
  int64_t first = 0;
  for (int stage = 0; stage < request.stages; ++stage) {
    nn::ModelPart part;
    part.first_layer = first;
    part.layers = layers[static_cast<size_t>(stage)];
    part.embedding = stage == 0;
    part.head = stage + 1 == request.stages;
    parts.push_back(part);
    first += part.layers;
  }
  return parts;
}

}  // namespace lockstep::parallel
