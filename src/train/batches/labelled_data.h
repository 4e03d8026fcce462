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
  LabelledSet train, validation, test, validation_mm = {}, test_mm = {};
  /// Of data.mixture: the end of each source's files among those of `train`; else empty.
  std::vector<size_t> source_files = {};

  /// The training rows of each source; without a mixture, all.
  std::vector<LabelledSet> train_by_source() const;
};

/// Which rows need a label.
enum class LabelsNeeded { kAll, kNone };

/// Reads what the section `data` names, of data.mixture the rows of each source, and finds the
/// problem (task.problem_type, the model's, or what the training rows look like) and the labels
/// (task.labels, the model's own, those of the fields, or of the training rows). A test none of
/// whose rows has a label, or all of them -1 (as GLUE's), is without labels. Error (kData,
/// kConfig): as data::read_labelled, find_form, find_labels and targets_of; there is nothing to
/// know the labels from.
LabelledData read_labelled_data(
    const config::Config& config,
    const model::ModelConfig& model,
    LabelsNeeded needed = LabelsNeeded::kAll);

/// Labels as texts that a language model writes.
struct WrittenLabels {
  std::vector<std::vector<int64_t>> ids;  // of each label, the end of text behind it
  std::vector<double> lengths;            // what its log-likelihood is divided by
  bool is_greedy = false;                 // else the likeliest is taken
  std::vector<int64_t> prior = {};  // a prompt whose log-likelihoods are taken off; empty: none
};

struct ClassifierData {
  Datasets datasets;                 // rows with classes or outputs
  model::HeadSpec head;              // its labels and problem
  std::vector<double> weights = {};  // as LabelledData's
  int64_t pad = 0;                   // the id that fills short rows
  WrittenLabels written = {};        // of labels that are texts; else empty
  LabelledData rows = {};            // rank 0's
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
