// Splits a model into pipeline stages.
#include "model/split.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "model/stages.h"

namespace lockstep::model {
namespace {

[[noreturn]] void fail(const std::string& message, const std::string& remedy) {
  throw Error(ErrorKind::kConfig, message, remedy);
}

}  // namespace

std::vector<int64_t> parse_split(
    const std::string& text, int64_t total, int stages, const std::string& item) {
  std::vector<int64_t> counts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc() || end != text.data() + comma || value < 0) {
      fail(
          fmt::format("parallel.split: '{}' is not a list of {}s", text, item),
          fmt::format("use auto, parameters, or the {}s of each stage: 3,4,4,1", item));
    }
    counts.push_back(value);
    at = comma + 1;
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (counts.size() != static_cast<size_t>(stages) || sum != total) {
    fail(
        fmt::format(
            "parallel.split={} assigns {} {}s to {} stages, but the model has {} {}s and the "
            "pipeline {} stages",
            text,
            sum,
            item,
            counts.size(),
            total,
            item,
            stages),
        fmt::format(
            "list the {}s of each stage in order, including virtual stages, or use auto", item));
  }
  for (size_t stage = 1; stage + 1 < counts.size(); ++stage) {
    if (counts[stage] == 0) {
      fail(
          fmt::format("parallel.split={} assigns nothing to stage {}", text, stage),
          fmt::format("only the first and the last stage may have no {}", item));
    }
  }
  return counts;
}

std::vector<ModelPart> split_model(const ModelConfig& config, const SplitRequest& request) {
  std::vector<int64_t> layers;
  if (request.split != "auto" && request.split != "parameters") {
    layers = parse_split(request.split, config.layers, request.stages, "layer");
  } else if (request.stages > config.layers) {
    fail(
        fmt::format("{} pipeline stages for a model with {} layers", request.stages, config.layers),
        "reduce parallel.pipeline times the stages per rank (parallel.virtual_stages; 2 for zb-v)");
  } else {
    layers = split_evenly(
        request.split == "auto" ? stage_operations(config, request.sequence_length)
                                : stage_elements(config),
        request.stages,
        /*least_of_last=*/0);
  }
  std::vector<ModelPart> parts;
  int64_t first = 0;
  for (int stage = 0; stage < request.stages; ++stage) {
    ModelPart part;
    part.first_layer = first;
    part.layers = layers[static_cast<size_t>(stage)];
    part.embedding = stage == 0;
    part.head = stage + 1 == request.stages;
    parts.push_back(part);
    first += part.layers;
  }
  return parts;
}

}  // namespace lockstep::model
