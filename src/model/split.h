// Assignment of layers to pipeline stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Units that a process builds: all, or those of a pipeline stage.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t layers = -1;  // -1: all remaining layers
  bool embedding = true, head = true;
};

struct SplitRequest {
  int stages = 1;              // stages of the whole pipeline: ranks times stages per rank
  std::string split = "auto";  // "auto": balance operations; "parameters": balance size; or layers
                               // per stage: "3,4,4,1"
  int64_t sequence_length = 1024;  // attention's share of the cost grows with the length
};

/// Returns the units of each stage, [stages], in order. The embedding is on the first stage and the
/// head on the last; both are included in the cost: forward operations per token ("auto") or
/// elements ("parameters"; a tied head counts, since its stage has a copy). Minimizes the cost of
/// the most expensive stage. Each stage has at least one layer, except the last, which may have
/// only the head. With a manual split the first may have only the embedding. Throws Error (config)
/// if there are more stages than layers, or a list does not have `stages` numbers or does not sum
/// to the number of layers.
std::vector<ModelPart> split_model(const ModelConfig& config, const SplitRequest& request);

/// Parses "3,4,4,1". Throws Error (config) if these are not `stages` numbers that sum to `total`,
/// or if a stage other than the first and last gets 0; `item` names the counted items.
std::vector<int64_t> parse_split(
    const std::string& text, int64_t total, int stages, const std::string& item);

}  // namespace lockstep::model
