// Preference tuning: its objective, and its data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "config/tasks.h"
#include "model/model_config.h"
#include "objective/objective.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"
#include "train/tasks/answer_reference.h"

namespace lockstep::train {

using config::rows_of_sequence;
using config::trains_on_answers;
using config::trains_rewards;

/// What the task and section `preference` name, and TRL's trainers mean by it.
objective::ObjectivePointer preference_objective(const config::Config& config);
/// Whether it compares with the model as it was.
bool needs_reference(const config::Config& config);

/// The id that fills short rows: config.json's, else the tokenizer's padding, else its end of text.
int32_t padding_of_answers(const model::ModelConfig& model, const text::Tokenizer& tokenizer);

/// How many rows or pairs there are of each set, and what became of those that were too long.
struct PreferenceCounts {
  int64_t train = 0, validation = 0, test = 0;
  int64_t dropped = 0, cut = 0;
  std::string text(const config::Config& config) const;
};

/// Reads and encodes what `data` names, without writing anything: for a dry run. Error as
/// data::read_preferences, data::encode_preferences.
PreferenceCounts count_preferences(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

/// The same, written by rank 0 and opened by all. `block`: rows among which answers are mismatched
/// for KTO, those of a step. Every rank must call.
AnswerSets open_preference_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    int64_t block,
    comm::Communicator& communicator);

}  // namespace lockstep::train
