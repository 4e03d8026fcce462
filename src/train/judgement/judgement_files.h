// A classifier's answers and what they are worth, as files.
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

/// Whose probabilities a row's line has: of the likeliest label, or of those that are told; or
/// each label's too.
enum class Shown { kTaken, kAll };

/// What a classifier was asked and what it answered.
struct Answered {
  const LabelledSet& set;
  const at::Tensor& logits;  // float32 [rows, outputs], on the CPU
  const model::HeadSpec& head;
  std::vector<double> thresholds = {};  // as answer_of()
  size_t positive = 1;                  // as JudgeOptions
  Shown shown = Shown::kTaken;
};

/// A row of predictions.jsonl: index, text, (pair), (label), prediction, (loss), and of labels
/// their probabilities.
std::string prediction_line(const Answered& answered, size_t row);

/// As transformers' run_classification.py writes predict_results.txt: a header, then each row's
/// index and label, list of labels (as Python prints it) or number (three digits).
std::string predict_results(const Answered& answered);

/// Into `folder`: predictions{suffix}.jsonl and predict_results{suffix}.txt.
void write_answers(
    const std::filesystem::path& folder, const Answered& answered, const std::string& suffix = "");

/// Into `folder`, of rows some of which have a label (of others write_answers' files alone):
/// predictions.jsonl, predict_results.txt, top_losses.jsonl, report.html and, of
/// labels, classification_report.txt and .json; of one label each confusion_matrix.csv,
/// most_confused.csv and calibration.csv; of several multilabel_confusion.csv; of numbers
/// regression_report.json; and the page's pictures (train/judgement/report_page.h). `history` are
/// the lines of a run's log_history, for its curves.
void write_judgement(
    const std::filesystem::path& folder,
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<std::string>& history = {});

/// For a terminal: the report of labels, or a table of numbers.
std::string report_text(const Judgement& judgement, const model::HeadSpec& head);
/// The same as one JSON object.
nlohmann::ordered_json report_json(const Judgement& judgement, const model::HeadSpec& head);

}  // namespace lockstep::train
