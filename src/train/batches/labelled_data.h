// The rows of a classifier: what is read, which labels there are, and what each row is to be told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "data/row_targets.h"
#include "model/model_config.h"
#include "text/tokenizer.h"
#include "train/batches/datasets.h"

namespace lockstep::train {

/// Whether rows are to be classified: task.type says so, or the model's folder is for that, or a
/// key is given that only classification reads (labels, their field, a pair's).
bool classifies(const config::Config& config, const model::ModelConfig& model);

/// Rows with what they are to be told; empty where the section names none.
struct LabelledSet {
  data::LabelledRows rows;
  data::RowTargets targets;
};

struct LabelledData {
  model::ProblemType problem = model::ProblemType::kSingleLabel;
  std::vector<std::string> labels;   // of several numbers, their names
  std::vector<double> weights = {};  // of each label (task.class_weights); empty: all are one
  LabelledSet train, validation, test;
};

/// Which rows need a label.
enum class LabelsNeeded { kAll, kNone };

/// Reads what the section `data` names, and finds the problem (task.problem_type, the model's, or
/// what the training rows look like) and the labels (task.labels, the model's own, those of the
/// fields, or of the training rows). Error (kData, kConfig): as data::read_labelled, find_form,
/// find_labels and targets_of; there is nothing to know the labels from.
LabelledData read_labelled_data(
    const config::Config& config,
    const model::ModelConfig& model,
    LabelsNeeded needed = LabelsNeeded::kAll);

struct ClassifierData {
  Datasets datasets;                 // rows with classes or outputs
  model::HeadSpec head;              // its labels and problem
  std::vector<double> weights = {};  // as LabelledData's
  int64_t pad = 0;                   // the id that fills short rows
  /// Of labels that are written: what their log-likelihoods are divided by; else empty.
  std::vector<double> label_lengths = {};
  LabelledData rows = {};  // rank 0's
};

/// `read`, which is read_labelled_data() or its like, and tokens, by rank 0; the others wait. Every
/// rank must call.
ClassifierData open_classifier_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read);

}  // namespace lockstep::train
