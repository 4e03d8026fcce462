// Classification of rows, shared by `lockstep eval` and `lockstep predict`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/core/config.h"
#include "config/core/origin.h"
#include "model/source.h"
#include "text/tokenizer.h"
#include "train/batches/labelled_data.h"
#include "train/judgement/judgement_files.h"
#include "train/machine/rank_context.h"
#include "train/tasks/classification.h"
#include "train/tasks/classifier_notes.h"
#include "train/weights/adapters.h"

namespace lockstep::cli {

/// Returns the maximum row length if data.sequence_length is not set: the model's number of
/// positions, at most 1024.
int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model);

/// Returns true if the model or the adapter was trained for generative_classification.
bool writes_labels(
    const model::ModelSource& source, const std::optional<train::AdapterRequest>& adapter);

struct ClassifiedRows {
  train::ClassifierData data;
  train::Classified classified;  // rows of data.test, otherwise of data.validation
  bool is_test = false;
  train::ClassifierNotes notes;  // of the model's folder
  train::JudgeOptions judging;   // thresholds are those of the notes
  train::Shown shown = train::Shown::kTaken;

  const train::LabelledSet& set() const { return is_test ? data.rows.test : data.rows.validation; }
  train::Answered answered() const {
    return {set(), classified.logits, data.head, judging.thresholds, judging.positive, shown};
  }
};

/// Reads and classifies the rows of data.test, or of data.validation if there is no test set. With
/// `text`, classifies only this text. Fields and lengths that are not in `given`, and the positive
/// label, are those used in training. Throws Error (kConfig) if no rows are named, if the model has
/// no classifier or one for another problem type, or if the problem type does not have a metric or
/// label. Must be called on every rank.
ClassifiedRows classify_rows(
    config::Config config,
    const config::Origins& given,
    train::LabelsNeeded needed,
    train::RankContext& rank_context,
    const std::optional<std::string>& text = std::nullopt);

}  // namespace lockstep::cli
