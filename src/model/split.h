// Which layers each stage of a pipeline holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace lockstep::model {

/// The units that a process builds: all of them, or those of a pipeline stage.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t layers = -1;  // -1: to the last
  bool embedding = true, head = true;
};

struct SplitRequest {
  int stages = 1;  // of the whole pipeline: ranks times stages a rank
  std::string split =
      "auto";  // "auto": even cost; "parameters": even size; or layers by hand: "3,4,4,1"
  int64_t sequence_length = 1024;  // attention's share of the cost grows with it
};

/// The part of the model that each stage builds, [stages], in order: the embedding is on the first,
/// the head on the last, and both are counted: as operations of a forward pass a token ("auto"), or
/// as elements ("parameters"; a tied head counts, since its stage holds a copy). The costliest
/// stage is as cheap as it can be; each stage holds a layer at least, but the last, which may hold
/// the head alone. By hand the first may hold the embedding alone too. Throws (config): more stages
/// than layers, a list that is not of `stages` numbers or does not sum to the layers.
std::vector<ModelPart> split_model(const ModelConfig& config, const SplitRequest& request);

/// The numbers of "3,4,4,1". Throws (config) where they are not `stages` numbers that sum to
/// `total` or a stage between two others gets nothing; `item` names what is counted.
std::vector<int64_t> parse_split(
    const std::string& text, int64_t total, int stages, const std::string& item);

}  // namespace lockstep::model
