// Reads the labelled rows of a classifier and finds the label names and targets.
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

/// Returns true if the run classifies rows. This is the case if task.type requests it, if the model
/// is a classifier, or if a key is set that only classification uses (labels, label field, pair
/// field).
bool classifies(const config::Config& config, const model::ModelConfig& model);

/// Rows and their targets. Empty if not configured.
struct LabelledSet {
  data::LabelledRows rows;
  data::RowTargets targets;
};

struct LabelledData {
  model::ProblemType problem = model::ProblemType::kSingleLabel;
  std::vector<std::string> labels;   // class names, or the names of the outputs for regression
  std::vector<double> weights = {};  // per label (task.class_weights); empty: all are 1
  LabelledSet train, validation, test, validation_mm = {}, test_mm = {};
  /// For each data.mixture source, the index in `train` after its last file. Empty without a
  /// mixture.
  std::vector<size_t> source_files = {};

  /// Returns the training rows of each source, or one set with all rows if there is no mixture.
  std::vector<LabelledSet> train_by_source() const;
};

/// Whether every row must have a label.
enum class LabelsNeeded { kAll, kNone };

/// Reads the rows that the `data` section names (with data.mixture, those of each source) and
/// determines the problem type and the labels. The problem type is task.problem_type, else the
/// model's, else it is guessed from the training rows. The labels are task.labels, else the
/// model's, else the field names, else those of the training rows. A test set is treated as
/// unlabelled if none of its rows has a label or all labels are -1 (as in GLUE).
///
/// Throws Error (kData, kConfig) like data::read_labelled, find_form, find_labels and targets_of,
/// and if the labels cannot be determined.
LabelledData read_labelled_data(
    const config::Config& config,
    const model::ModelConfig& model,
    LabelsNeeded needed = LabelsNeeded::kAll);

/// Token sequences that a language model generates for the labels.
struct WrittenLabels {
  std::vector<std::vector<int64_t>> ids;  // tokens of each label, including the end-of-text token
  std::vector<double> lengths;            // divisor of each label's log-likelihood
  bool is_greedy = false;                 // decode greedily; otherwise choose the most likely label
  std::vector<int64_t> prior = {};  // prompt whose log-likelihoods are subtracted; empty: none
};

/// Returns the ids of training rows as a classifier reads them, at most `sequence_length` per row.
std::vector<data::RowIds> ids_of_rows(
    const data::LabelledRows& rows,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length);

struct ClassifierData {
  Datasets datasets;                 // rows with classes or outputs
  model::HeadSpec head;              // labels and problem type
  std::vector<double> weights = {};  // class weights, as in LabelledData
  int64_t pad = 0;                   // padding token
  WrittenLabels written = {};        // for generative classification; otherwise empty
  LabelledData rows = {};            // only on rank 0
};

/// Opens the data of a classifier. Rank 0 calls `read` (for example read_labelled_data()) and
/// tokenizes the rows while the other ranks wait. Must be called on every rank.
ClassifierData open_classifier_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read);

}  // namespace lockstep::train
