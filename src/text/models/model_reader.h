// The "model" of a tokenizer.json.
#pragma once

#include <memory>
#include <optional>

#include "text/models/bpe.h"
#include "text/models/fields.h"
#include "text/models/model.h"
#include "text/models/model_tables.h"

namespace lockstep::text {

/// What a model is read for.
enum class ModelInput {
  kText,
  kBytesIfPossible,  // the pre-tokenizer's last step maps bytes: a BPE model may take the bytes
                     // themselves
};

struct ReadModel {
  std::unique_ptr<Model> model;
  bool takes_bytes;
};

/// An Error names the key that is wrong, or the type that is not known.
/// `tables`, where given, are taken in place of "vocab" and "merges".
ReadModel read_model(const Field& field, ModelInput input, std::optional<ModelTables> tables);

}  // namespace lockstep::text
