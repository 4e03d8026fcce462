// Writes a classifier's predictions, metrics and reports to files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "model/head.h"
#include "train/batches/labelled_data.h"
#include "train/judgement/judgement.h"

namespace lockstep::train {

/// Probabilities in a prediction line: those of the predicted labels or those of all labels.
enum class Shown { kTaken, kAll };

/// Rows and predictions of a classifier.
struct Answered {
  const LabelledSet& set;
  const at::Tensor& logits;  // float32 [rows, outputs], on the CPU
  const model::HeadSpec& head;
  std::vector<double> thresholds = {};  // see answer_of()
  size_t positive = 1;                  // see JudgeOptions
  Shown shown = Shown::kTaken;
};

/// Returns a line of predictions.jsonl with these fields: index, text, text pair and label if
/// available, prediction, loss if the row has a label, and probabilities of labels.
std::string prediction_line(const Answered& answered, size_t row);

/// Returns predict_results.txt in the format of transformers' run_classification.py. After a
/// header, each line has a row's index and its label, list of labels (as Python prints it) or
/// number (with three decimals).
std::string predict_results(const Answered& answered);

/// Writes predictions{suffix}.jsonl and predict_results{suffix}.txt to `folder`.
void write_answers(
    const std::filesystem::path& folder, const Answered& answered, const std::string& suffix = "");

/// Writes the report of a classifier to `folder`. If no row has a label, writes only the files of
/// write_answers(). The files are:
///
/// - always: predictions.jsonl, predict_results.txt, top_losses.jsonl, report.html and its pictures
///   (train/judgement/report_page.h)
/// - labels: classification_report.txt and .json
/// - single-label: confusion_matrix.csv, most_confused.csv and calibration.csv
/// - multi-label: multilabel_confusion.csv
/// - regression: regression_report.json
///
/// `history` contains the lines of the run's log_history, for its curves.
void write_judgement(
    const std::filesystem::path& folder,
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<std::string>& history = {});

/// Returns the report as text for a terminal: a classification report or a table of regression
/// metrics.
std::string report_text(const Judgement& judgement, const model::HeadSpec& head);
/// Returns the same report as a JSON object.
nlohmann::ordered_json report_json(const Judgement& judgement, const model::HeadSpec& head);

}  // namespace lockstep::train
