// Classification of rows: its data, its judgement, and the files that tell of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "config/core/config.h"
#include "data/labelled_rows.h"
#include "metrics/classification_report.h"
#include "model/model_config.h"
#include "nn/forward_context.h"
#include "objective/objectives.h"
#include "parallel/ranks/axes.h"
#include "text/tokenizer.h"
#include "train/datasets.h"

namespace lockstep::train {

/// Whether rows are to be classified: task.type, else what the model's folder is for.
bool classifies(const config::TaskSection& task, const model::ModelConfig& model);

/// Rows with their classes; empty where the section names none.
struct LabelledSet {
  data::LabelledRows rows;
  std::vector<int64_t> classes;  // data::kNoClass where a row has none
};

struct LabelledData {
  std::vector<std::string> labels;
  std::vector<double> weights = {};  // of each label (task.class_weights); empty: all are one
  LabelledSet train, validation, test;
};

/// Which rows need a label.
enum class LabelsNeeded { kAll, kNone };

/// Reads what the section `data` names, and finds the labels: task.labels, the model's own, or
/// those of the training rows. Error (kData, kConfig): as data::read_labelled, find_labels and
/// classes_of; there is nothing to know the labels from.
LabelledData read_labelled_data(
    const config::Config& config,
    const model::ModelConfig& model,
    LabelsNeeded needed = LabelsNeeded::kAll);

struct ClassifierData {
  Datasets datasets;                 // rows with classes
  model::HeadSpec head;              // its labels
  std::vector<double> weights = {};  // as LabelledData's
  int64_t pad = 0;                   // the id that fills short rows
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

/// A classifier's logits of the rows of batches, as parallel::ParallelModel::class_scores.
using ClassScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

struct Classified {
  at::Tensor logits;  // float32 [rows, classes], on the CPU, the same on every rank
  int64_t batches = 0;
  double seconds = 0;
};

/// Every row once, in order, in batches that the data-parallel ranks take in turn: the batches are
/// the same on any number of ranks. Every rank must call. `progress(done, all)` is told of this
/// rank's batches.
Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::Axes& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

/// What a classifier's logits are worth; rows without a class are left out.
struct Judgement {
  int64_t rows = 0;
  double loss = 0;                                      // as objective::class_cross_entropy's
  std::vector<std::pair<std::string, double>> metrics;  // accuracy first
  metrics::ClassificationReport report;
  metrics::Matrix confusion;
};
Judgement judge(
    const at::Tensor& logits,
    const std::vector<int64_t>& classes,
    const std::vector<std::string>& labels,
    const objective::ClassOptions& options = {});

/// A row of predictions.jsonl: index, text, (pair), (label), prediction, probability, (loss); with
/// `all` each label's probability, too.
enum class Shown { kLikeliest, kAll };
std::string prediction_line(
    const LabelledSet& set,
    size_t row,
    const at::Tensor& logits,
    const std::vector<std::string>& labels,
    Shown shown = Shown::kLikeliest);

/// classification_report.txt and .json, confusion_matrix.csv and .svg, predictions.jsonl.
void write_judgement(
    const std::filesystem::path& folder,
    const Judgement& judgement,
    const LabelledSet& set,
    const at::Tensor& logits,
    const std::vector<std::string>& labels);

}  // namespace lockstep::train
