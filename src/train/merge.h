// Merges an adapter into the weights of its base model.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pieces.h"
#include "model/description.h"
#include "model/source.h"
#include "parallel/model_spec.h"
#include "text/tokenizer.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

/// Weights of a model folder after merging an adapter, computed one parameter at a time. The weight
/// of a linear with an adapter becomes W + s B A (transposed if the file stores [in, out]). With
/// DoRA, the rows are then scaled to their trained norms. Other parameters that the adapter trained
/// replace those of the base. Packed weights are dequantized.
class MergedWeights {
 public:
  /// Throws Error (config, data) if the adapter cannot be merged.
  MergedWeights(const model::ModelSource& base, const std::optional<AdapterRequest>& adapter);

  const model::ModelConfig& config() const { return spec_.config; }
  /// The adapter's generation settings, otherwise the base's.
  const model::GenerationConfig& generation() const { return generation_; }
  /// Returns the whole parameter in float32 on the CPU. `layer` belongs to the config and contains
  /// `parameter`.
  at::Tensor values(const model::LayerSpec& layer, const model::ParameterSpec& parameter) const;

 private:
  parallel::ModelSpec spec_;
  model::GenerationConfig generation_;
};

struct MergedModel {
  model::ModelConfig config;
  at::ScalarType type = at::kFloat;
  std::vector<checkpoint::Piece> weights;  // file group "model", whole tensors on the CPU
  model::GenerationConfig generation = {};
  std::map<std::string, std::string> kept = {};  // other files of the base's folder
};

/// Returns all merged weights, rounded once to `type`, by default the type of the base weights.
/// Needs memory for the model's weights and one more parameter in float32. Throws Error (config,
/// data).
MergedModel merge_adapter(
    const model::ModelSource& base,
    const std::optional<AdapterRequest>& adapter,
    std::optional<at::ScalarType> type = std::nullopt);

/// Quantizes the linears of `model` from the model's type, with the same result as bitsandbytes.
/// Throws Error (config) if `quantization` does not match the names of the linears.
void pack(MergedModel& model, model::Quantization quantization);

/// Writes a model folder, including the tokenizer's files if `tokenizer` is not null.
void save_merged(
    const std::filesystem::path& folder,
    const MergedModel& model,
    const text::Tokenizer* tokenizer);

}  // namespace lockstep::train
