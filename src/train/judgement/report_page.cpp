// Writes the HTML report of a classifier.
#include "train/judgement/report_page.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_lines.h"
#include "metrics/confusion_picture.h"
#include "metrics/curve_picture.h"

namespace lockstep::train {
namespace {

using metrics::Curve;
using metrics::NamedCurve;
using model::ProblemType;

constexpr size_t kMostCurves = 8, kMostWorst = 20, kLongestText = 400;
constexpr int64_t kPageBins = 15;

constexpr const char* kHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Report</title>\n"
    "<style>body{font:14px/1.4 sans-serif;margin:24px;max-width:1100px}"
    "h2{margin-top:32px}table{border-collapse:collapse}"
    "td,th{border:1px solid #ddd;padding:3px 8px;text-align:left;vertical-align:top}"
    "pre{background:#f6f6f6;padding:12px;overflow:auto}.pictures{display:flex;flex-wrap:wrap}"
    "</style></head><body>\n<h1>Report</h1>\n";

std::string cut(const std::string& text) {
  if (text.size() <= kLongestText) {
    return text;
  }
  size_t end = kLongestText;
  while ((text[end] & 0xC0) == 0x80) {  // do not split a UTF-8 character
    --end;
  }
  return text.substr(0, end) + "\u2026";
}

std::string row_of_table(const std::vector<std::string>& cells, const char* tag = "td") {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    row += fmt::format("<{0}>{1}</{0}>", tag, metrics::escaped(cell));
  }
  return row + "</tr>\n";
}

/// True labels and scores of the rows with a label.
struct Scored {
  metrics::Truths truth;
  metrics::Scores scores;
};

Scored scored(const Answered& answered) {
  const data::RowTargets& targets = answered.set.targets;
  const size_t labels = answered.head.labels.size();
  Scored result;
  for (size_t row = 0; row < targets.classes.size(); ++row) {
    if (targets.classes[row] < 0) {
      continue;
    }
    result.scores.push_back(answer_of(answered.logits, row, answered.head.problem, {}).scores);
    result.truth.emplace_back();
    for (size_t k = 0; k < labels; ++k) {
      result.truth.back().push_back(
          targets.outputs.empty() ? targets.classes[row] == static_cast<int64_t>(k)
                                  : targets.outputs[row * labels + k] > 0);
    }
  }
  return result;
}

/// Returns one curve for each of the most frequent labels, or for two exclusive labels only that of
/// the positive one.
std::vector<NamedCurve> curves_of(
    const Answered& answered, const Scored& of, Curve (*curve)(const metrics::Ranking&)) {
  const std::vector<std::string>& labels = answered.head.labels;
  const bool is_binary = answered.head.problem == ProblemType::kSingleLabel && labels.size() == 2;
  std::vector<std::pair<int64_t, size_t>> order;  // negated number of rows, label
  for (size_t k = 0; k < labels.size(); ++k) {
    if (is_binary && k != answered.positive) {
      continue;
    }
    int64_t rows = 0;
    for (const std::vector<bool>& truth : of.truth) {
      rows += truth[k] ? 1 : 0;
    }
    order.emplace_back(-rows, k);
  }
  std::sort(order.begin(), order.end());
  std::vector<NamedCurve> curves;
  for (const auto& [rows, k] : order) {
    if (curves.size() < kMostCurves) {
      curves.push_back({labels[k], curve(metrics::ranking_of(of.truth, of.scores, k))});
    }
  }
  return curves;
}

/// Returns the values of a key in the run's history, by step.
std::optional<NamedCurve> history_of(
    const std::vector<std::string>& history, const char* key, const char* name) {
  NamedCurve found{name, {}};
  for (const std::string& line : history) {
    const nlohmann::json json = parse_json_line(line);
    if (json.contains(key) && json.at(key).is_number() && json.contains("step")) {
      found.curve.x.push_back(json.at("step").get<double>());
      found.curve.y.push_back(json.at(key).get<double>());
    }
  }
  return found.curve.x.size() < 2 ? std::nullopt : std::optional(std::move(found));
}

void add_pictures_of_run(
    const std::vector<std::string>& history, std::vector<ReportPicture>& pictures) {
  std::vector<NamedCurve> losses, metrics;
  for (const auto& [key, name] : {std::pair{"loss", "training"}, {"eval_loss", "evaluation"}}) {
    if (auto curve = history_of(history, key, name)) {
      losses.push_back(std::move(*curve));
    }
  }
  for (const auto& [key, name] :
       {std::pair{"eval_accuracy", "accuracy"}, {"eval_f1", "F1"}, {"eval_spearman", "Spearman"}}) {
    if (auto curve = history_of(history, key, name)) {
      metrics.push_back(std::move(*curve));
    }
  }
  if (!losses.empty()) {
    pictures.push_back(
        {"Training",
         "losses.svg",
         metrics::draw_curves(losses, {"Loss", "step", "loss", /*is_unit=*/false})});
  }
  if (!metrics.empty()) {
    pictures.push_back(
        {"Training",
         "evaluations.svg",
         metrics::draw_curves(metrics, {"Evaluation", "step", "", /*is_unit=*/false})});
  }
}

void add_pictures_of_labels(
    const Judgement& judgement, const Answered& answered, std::vector<ReportPicture>& pictures) {
  const Scored of = scored(answered);
  const bool has_one_label = answered.head.problem == ProblemType::kSingleLabel;
  if (has_one_label) {
    pictures.push_back(
        {"Confusion",
         "confusion_matrix.svg",
         metrics::draw_confusion(judgement.confusion, answered.head.labels)});
  }
  pictures.push_back(
      {"Curves",
       "roc_curve.svg",
       metrics::draw_curves(
           curves_of(answered, of, metrics::roc_curve),
           {"ROC", "false positive rate", "true positive rate", true, /*has_diagonal=*/true})});
  pictures.push_back(
      {"Curves",
       "precision_recall_curve.svg",
       metrics::draw_curves(
           curves_of(answered, of, metrics::precision_recall_curve),
           {"Precision and recall", "recall", "precision"})});
  if (has_one_label) {
    NamedCurve bins{"bins of rows", {}};
    for (const metrics::CalibrationBin& bin : calibration_of(answered, kPageBins)) {
      if (bin.rows > 0) {
        bins.curve.x.push_back(bin.confidence);
        bins.curve.y.push_back(bin.accuracy);
      }
    }
    pictures.push_back(
        {"Curves",
         "calibration.svg",
         metrics::draw_curves(
             {bins}, {"Calibration", "probability", "accuracy", true, /*has_diagonal=*/true})});
  }
}

/// Formats the pictures. Consecutive pictures with the same heading share it.
std::string shown_pictures(const std::vector<ReportPicture>& pictures) {
  std::string text;
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (i == 0 || pictures[i].heading != pictures[i - 1].heading) {
      text += fmt::format(
          "{}<h2>{}</h2>\n<div class=\"pictures\">\n",
          i == 0 ? "" : "</div>\n",
          pictures[i].heading);
    }
    text += pictures[i].svg;
  }
  return text.empty() ? text : text + "</div>\n";
}

std::string table_of_worst(
    const Judgement& judgement, const Answered& answered, const std::vector<size_t>& worst) {
  std::string text = "<h2>Largest losses</h2>\n<table>\n";
  text += row_of_table({"row", "loss", "label", "prediction", "text"}, "th");
  for (size_t i = 0; i < std::min(worst.size(), kMostWorst); ++i) {
    const auto line = nlohmann::json::parse(prediction_line(answered, worst[i]));
    const auto shown = [&](const char* key) {
      return line.at(key).is_string() ? line.at(key).get<std::string>() : line.at(key).dump();
    };
    const data::LabelledRow& row = answered.set.rows.rows[worst[i]];
    text += row_of_table(
        {std::to_string(worst[i]),
         fmt::format("{:.4f}", judgement.losses[worst[i]]),
         shown("label"),
         shown("prediction"),
         cut(row.pair.empty() ? row.text : row.text + " | " + row.pair)});
  }
  return text + "</table>\n";
}

}  // namespace

std::vector<metrics::CalibrationBin> calibration_of(const Answered& answered, int64_t bins) {
  std::vector<double> confidences;
  std::vector<bool> hits;
  const std::vector<int64_t>& classes = answered.set.targets.classes;
  for (size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] >= 0) {
      const Answer answer =
          answer_of(answered.logits, row, answered.head.problem, answered.thresholds);
      confidences.push_back(answer.scores[static_cast<size_t>(answer.likeliest)]);
      hits.push_back(answer.likeliest == classes[row]);
    }
  }
  return metrics::calibration(confidences, hits, bins);
}

std::vector<ReportPicture> report_pictures(
    const Judgement& judgement, const Answered& answered, const std::vector<std::string>& history) {
  std::vector<ReportPicture> pictures;
  add_pictures_of_run(history, pictures);
  if (judgement.report) {
    add_pictures_of_labels(judgement, answered, pictures);
  }
  return pictures;
}

std::string report_page(
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<size_t>& worst,
    const std::vector<ReportPicture>& pictures) {
  std::string page = kHead;
  page += fmt::format("<p>{} rows, loss {:.5f}</p>\n<table>\n", judgement.rows, judgement.loss);
  for (const auto& [name, value] : judgement.metrics) {
    page += row_of_table({name, fmt::format("{:.5f}", value)});
  }
  page += "</table>\n<pre>" + [&] {
    std::string lines;  // keeps line breaks
    const std::string text = report_text(judgement, answered.head);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines += metrics::escaped(text.substr(at, end - at)) + "\n";
      at = end + 1;
    }
    return lines;
  }() + "</pre>\n";
  page += shown_pictures(pictures);
  page += table_of_worst(judgement, answered, worst);
  return page + "</body></html>\n";
}

}  // namespace lockstep::train
