// Reader for the "model" section of a tokenizer.json.
#pragma once

#include <memory>
#include <optional>

#include "text/models/bpe.h"
#include "text/models/fields.h"
#include "text/models/model.h"
#include "text/models/model_tables.h"

namespace lockstep::text {

/// Form of the input that the model receives.
enum class ModelInput {
  kText,
  kBytesIfPossible,  // only if the pre-tokenizer ends with a byte mapping: a BPE model may encode
                     // bytes directly
};

struct ReadModel {
  std::unique_ptr<Model> model;
  bool takes_bytes;
};

/// Reads a model. Throws Error with the invalid key or the unknown type. If given, `tables` replace
/// "vocab" and "merges".
ReadModel read_model(const Field& field, ModelInput input, std::optional<ModelTables> tables);

}  // namespace lockstep::text
