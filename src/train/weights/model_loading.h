// From what the user named to a model with weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "model/source.h"
#include "nn/language_model.h"
#include "objective/task.h"
#include "parallel/parallelize.h"
#include "text/tokenizer.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

/// What `model.path` or `model.preset` names. A folder of checkpoints (an output_dir) stands for
/// the latest good one. Error (config) where neither or both are given.
model::ModelSource find_source(const std::string& path, const std::string& preset);

struct ModelRequest {
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  uint64_t seed = 42;                     // of random weights
  std::optional<int64_t> tokenizer_size;  // ids of the tokenizer that will be used
  bool resize_embeddings = false;         // grow the embedding where the tokenizer has more
  std::vector<std::string> freeze;        // parameters that are not trained (model/freeze.h)
  std::optional<AdapterRequest> adapter;  // that is trained beside it, or was
  /// How linears are packed as they are read; nothing: as the folder holds them.
  std::optional<model::Quantization> quantization;
  std::optional<model::Float8> float8;  // which products are made in 8-bit floats
  objective::Task task = {};            // a head that the folder does not have begins at random
};

/// A preset has no text of its own: its begin and end of text are those of the tokenizer that it is
/// trained with, or none.
void take_special_tokens(model::ModelConfig& config, const text::Tokenizer& tokenizer);

/// The model of `source` as parallelize() wants it: each rank's part is read from the mapped files
/// straight into its place, or drawn at random by global element. Error (config) where the
/// tokenizer is larger than the embedding, or the folder has no head for a language model.
parallel::ModelSpec model_spec(const model::ModelSource& source, const ModelRequest& request);

/// Builds the whole model and fills it: from the folder's files, each tensor read from the mapping
/// straight into its place, or at random, equally on every rank. Error (config) where the tokenizer
/// is larger than the embedding.
std::unique_ptr<nn::LanguageModel> load_model(
    const model::ModelSource& source, const ModelRequest& request);

/// The type of the weights in the folder's files ("BF16" -> bfloat16), float32 where there are none
/// or others.
at::ScalarType stored_type(const model::ModelSource& source);

}  // namespace lockstep::train
