// Form of the training rows and treatment of long documents if the user leaves them to Lockstep.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "model/model_config.h"

namespace lockstep::train {

/// Section `data` without `auto` in data.prompt and data.long_documents.
struct RowChoice {
  config::DataSection section;
  std::string note;  // "data.train: rows are chats (messages): data.prompt=chat"; empty if not auto
};

/// Returns the choice for `config`. data.prompt=auto depends on the fields of the first rows of
/// each source; for tasks with their own rows and for encoders, it is none.
/// data.long_documents=auto is truncate for prompts and chats, otherwise split. Throws Error if
/// rows have the fields of several forms, or keys that only chats use are set for other rows.
RowChoice choose_rows(const config::Config& config, const model::ModelConfig& model);

/// Variant for all ranks of a job: rank 0 reads the rows and logs the note. Must be called on every
/// rank.
config::DataSection choose_rows(
    const config::Config& config,
    const model::ModelConfig& model,
    comm::Communicator& communicator);

}  // namespace lockstep::train
