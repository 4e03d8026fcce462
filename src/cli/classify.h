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

/// Maximum row length if data.sequence_length is not set: the model's positions, at most 1024.
int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model);

/// True if the model or the adapter was trained for generative_classification.
bool writes_labels(
    const model::ModelSource& source, const std::optional<train::AdapterRequest>& adapter);

struct ClassifiedRows {
  train::ClassifierData data;
  train::Classified classified;  // rows of data.test, otherwise of data.validation
  bool is_test = false;
  train::ClassifierNotes notes;  // of the model's folder
  train::JudgeOptions judging;   // with the thresholds of the notes
  train::Shown shown = train::Shown::kTaken;

  const train::LabelledSet& set() const { return is_test ? data.rows.test : data.rows.validation; }
  train::Answered answered() const {
    return {set(), classified.logits, data.head, judging.thresholds, judging.positive, shown};
  }
};

/// Reads the rows of data.test, otherwise of data.validation, and classifies them under the plan;
/// with `text`, only that row. Fields and lengths that are not `given`, and the label of interest,
/// are those of training. Every rank must call. Throws Error (kConfig) if no row is named, if the
/// model has no classifier or one for another problem, or for a metric or label that the problem
/// lacks.
ClassifiedRows classify_rows(
    config::Config config,
    const config::Origins& given,
    train::LabelsNeeded needed,
    train::RankContext& rank_context,
    const std::optional<std::string>& text = std::nullopt);

}  // namespace lockstep::cli
