// Loads the model that the user named.
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

/// Resolves `model.path` or `model.preset`. For a folder of checkpoints (an output_dir), uses the
/// latest valid one. Throws Error (config) if neither or both are set.
model::ModelSource find_source(const std::string& path, const std::string& preset);

struct ModelRequest {
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  uint64_t seed = 42;                     // for random weights
  std::optional<int64_t> tokenizer_size;  // vocabulary size of the tokenizer
  bool resize_embeddings = false;         // grow the embedding if the tokenizer has more entries
  std::vector<std::string> freeze;        // frozen parameters (model/freeze.h)
  std::optional<AdapterRequest> adapter;  // adapter to train or apply
  /// Quantization to apply on loading; empty: keep the folder's format.
  std::optional<model::Quantization> quantization;
  std::optional<model::Float8> float8;  // float8 matrix products
  objective::Task task = {};            // a head missing in the folder is drawn at random
  bool is_evaluation = false;           // a parameter missing in the folder is an error
};

/// Sets the begin- and end-of-text tokens of a preset to those of its tokenizer, if any.
void take_special_tokens(model::ModelConfig& config, const text::Tokenizer& tokenizer);

/// Returns the specification of `source` for parallelize(). Each rank reads its shard from the
/// memory-mapped files directly into its memory, or draws it at random by global element index.
/// Throws Error (config) if the tokenizer is larger than the embedding, or if the folder has no
/// language model head.
parallel::ModelSpec model_spec(const model::ModelSource& source, const ModelRequest& request);

/// Builds the whole model. Each tensor is read from the memory-mapped files directly into its
/// memory, or drawn at random, identically on every rank. Throws Error (config) if the tokenizer is
/// larger than the embedding.
std::unique_ptr<nn::LanguageModel> load_model(
    const model::ModelSource& source, const ModelRequest& request);

/// Returns bfloat16 if the folder contains bfloat16 tensors, unless its config.json names float32
/// as the type. Otherwise returns float32.
at::ScalarType stored_type(const model::ModelSource& source);

/// Returns the type of most elements in the folder's files, or nullopt if there are no weights or
/// they are packed.
std::optional<at::ScalarType> type_of_most_weights(const model::ModelSource& source);

}  // namespace lockstep::train
