// What `lockstep eval` and `lockstep predict` do with a classifier.
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

/// The longest row that is read where data.sequence_length does not say: the model's positions, at
/// most 1024.
int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model);

/// Whether the model, or the adapter, was trained to write labels (generative_classification).
bool writes_labels(
    const model::ModelSource& source, const std::optional<train::AdapterRequest>& adapter);

struct ClassifiedRows {
  train::ClassifierData data;
  train::Classified classified;  // of data.test, else of data.validation
  bool is_test = false;
  train::ClassifierNotes notes;  // of the model's folder
  train::JudgeOptions judging;   // with the thresholds of the notes
  train::Shown shown = train::Shown::kTaken;

  const train::LabelledSet& set() const { return is_test ? data.rows.test : data.rows.validation; }
  train::Answered answered() const {
    return {set(), classified.logits, data.head, judging.thresholds, judging.positive, shown};
  }
};

/// Reads the rows that data.test, or else data.validation, names, and classifies them under the
/// plan; with `text`, that one row instead. Fields and lengths that are not `given` are those that
/// the model was trained with, and so is the label that is looked for. Every rank must call. Error
/// (kConfig): no row is named, the model has no classifier, or one for another problem; a metric or
/// a label that the problem has not.
ClassifiedRows classify_rows(
    config::Config config,
    const config::Origins& given,
    train::LabelsNeeded needed,
    train::RankContext& rank_context,
    const std::optional<std::string>& text = std::nullopt);

}  // namespace lockstep::cli
