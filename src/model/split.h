// Assignment of layers to pipeline stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// Units built by a process: all units, or those of a pipeline stage.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t layers = -1;  // -1: all remaining layers
  bool embedding = true, head = true;
};

struct SplitRequest {
  int stages = 1;              // total pipeline stages: ranks times stages per rank
  std::string split = "auto";  // "auto": balance operations; "parameters": balance size; or layers
                               // per stage, "3,4,4,1"
  int64_t sequence_length = 1024;  // used for the cost of attention
};

/// Returns the units of each stage, [stages], in order. The embedding is on the first stage and the
/// head on the last. Minimizes the cost of the most expensive stage, including embedding and head.
/// The cost is forward operations per token ("auto") or the number of elements ("parameters"; a
/// tied head counts because its stage has a copy). Each stage has at least one layer, except that
/// the last stage may have only the head and, with a manual split, the first stage only the
/// embedding. Throws Error (config) if there are more stages than layers, or if a list does not
/// have `stages` numbers that sum to the number of layers.
std::vector<ModelPart> split_model(const ModelConfig& config, const SplitRequest& request);

/// Parses a split such as "3,4,4,1". Throws Error (config) unless it consists of `stages` numbers
/// that sum to `total` and are positive except on the first and last stage. `item` is the name of
/// the counted items in messages.
std::vector<int64_t> parse_split(
    const std::string& text, int64_t total, int stages, const std::string& item);

}  // namespace lockstep::model
