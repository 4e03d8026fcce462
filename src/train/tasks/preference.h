// Preference tuning: objectives and data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "config/tasks.h"
#include "data/preferences.h"
#include "model/model_config.h"
#include "objective/objective.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"
#include "train/tasks/answer_reference.h"

namespace lockstep::train {

using config::rows_of_sequence;
using config::trains_on_answers;
using config::trains_rewards;

/// Returns the objective that the task and the `preference` section configure. Options have the
/// same meaning as in TRL's trainers.
objective::ObjectivePointer preference_objective(const config::Config& config);
/// Returns the name of the loss. Objectives with only one loss have its name.
std::string loss_name(const config::PreferenceSection& section);
/// Returns true if the objective needs a reference model.
bool needs_reference(const config::Config& config);

/// Returns the padding token: that of config.json, else the tokenizer's, else its end-of-text
/// token.
int32_t padding_of_answers(const model::ModelConfig& model, const text::Tokenizer& tokenizer);

/// Number of rows or pairs in each set, and number of rows that were dropped or truncated.
struct PreferenceCounts {
  int64_t train = 0, validation = 0, test = 0;
  int64_t dropped = 0, cut = 0;
  std::string text(const config::Config& config) const;
};

/// Reads and encodes the files of `data` without writing files, for a dry run. Throws like
/// data::read_preferences and data::encode_preferences.
PreferenceCounts count_preferences(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

/// Returns the training answers as training reads them, in the order of the rows: truncated, and
/// for pairs the chosen one before the rejected one.
data::EncodedPreferences training_answers(
    const config::Config& config,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

/// Opens the preference data: rank 0 writes the token files, all ranks open them. For KTO, answers
/// are mismatched within blocks of `block` rows, the rows of a step. Every rank must call.
AnswerSets open_preference_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    int64_t block,
    comm::Communicator& communicator);

}  // namespace lockstep::train
