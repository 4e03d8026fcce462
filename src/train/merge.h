// An adapter and the model that it was trained beside, as one model.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/pieces.h"
#include "model/description.h"
#include "model/source.h"
#include "parallel/model_spec.h"
#include "text/tokenizer.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

/// A model of a folder with an adapter, a parameter at a time: W + s B A of each linear with an
/// adapter (transposed where the file holds [in, out]; with DoRA its rows of their trained sizes),
/// and what else the adapter trained in its place. Packed weights are what they stand for.
class MergedWeights {
 public:
  /// Error (config, data).
  MergedWeights(const model::ModelSource& base, const std::optional<AdapterRequest>& adapter);

  const model::ModelConfig& config() const { return spec_.config; }
  /// float32, whole, on the CPU. `layer` is one of the config's, and has the parameter.
  at::Tensor values(const model::LayerSpec& layer, const model::ParameterSpec& parameter) const;

 private:
  parallel::ModelSpec spec_;
};

struct MergedModel {
  model::ModelConfig config;
  at::ScalarType type = at::kFloat;
  std::vector<checkpoint::Piece> weights;  // of the file group "model", whole, on the CPU
};

/// All of them, rounded once to `type` (none: the base's own). Holds the model's weights, and one
/// more in float32. Error (config, data).
MergedModel merge_adapter(
    const model::ModelSource& base,
    const std::optional<AdapterRequest>& adapter,
    std::optional<at::ScalarType> type = std::nullopt);

/// Packs its linears, in its type: what bitsandbytes would make of the folder. Error (config) where
/// they are not to be named so.
void pack(MergedModel& model, model::Quantization quantization);

/// Writes it as a model folder, with the tokenizer's files where it is not null.
void save_merged(
    const std::filesystem::path& folder,
    const MergedModel& model,
    const text::Tokenizer* tokenizer);

}  // namespace lockstep::train
