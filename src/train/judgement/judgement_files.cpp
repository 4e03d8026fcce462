// Writes the prediction and report files of a classifier.
#include "train/judgement/judgement_files.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "data/records.h"
#include "train/judgement/report_page.h"

namespace lockstep::train {
namespace {

using model::ProblemType;
using nlohmann::ordered_json;

constexpr size_t kTopLosses = 50;
constexpr int64_t kBins = 15;

std::string line_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string confusion_csv(const metrics::Matrix& matrix, const std::vector<std::string>& labels) {
  std::string text = "true";
  for (const std::string& label : labels) {
    text += "," + data::csv_field(label);
  }
  for (size_t row = 0; row < labels.size(); ++row) {
    text += "\n" + data::csv_field(labels[row]);
    for (const double count : matrix[row]) {
      text += fmt::format(",{:.0f}", count);
    }
  }
  return text + "\n";
}

/// Returns a table of confused label pairs, most frequent first.
std::string confused_csv(const metrics::Matrix& matrix, const std::vector<std::string>& labels) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t truth = 0; truth < labels.size(); ++truth) {
    for (size_t predicted = 0; predicted < labels.size(); ++predicted) {
      if (truth != predicted && matrix[truth][predicted] > 0) {
        pairs.emplace_back(truth, predicted);
      }
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    return matrix[a.first][a.second] > matrix[b.first][b.second];
  });
  std::string text = "true,predicted,count\n";
  for (const auto& [truth, predicted] : pairs) {
    text += fmt::format(
        "{},{},{:.0f}\n",
        data::csv_field(labels[truth]),
        data::csv_field(labels[predicted]),
        matrix[truth][predicted]);
  }
  return text;
}

std::string calibration_csv(const std::vector<metrics::CalibrationBin>& bins) {
  std::string text = "low,high,rows,confidence,accuracy\n";
  for (const metrics::CalibrationBin& bin : bins) {
    text +=
        fmt::format("{},{},{},{},{}\n", bin.low, bin.high, bin.rows, bin.confidence, bin.accuracy);
  }
  return text;
}

/// Returns a 2x2 confusion table for each label.
std::string labels_csv(const Answered& answered) {
  const std::vector<std::string>& labels = answered.head.labels;
  std::vector<std::array<int64_t, 4>> counts(labels.size());  // index: 2 * true + predicted
  for (size_t row = 0; row < answered.set.targets.classes.size(); ++row) {
    if (answered.set.targets.classes[row] < 0) {
      continue;
    }
    const Answer answer =
        answer_of(answered.logits, row, answered.head.problem, answered.thresholds);
    for (size_t k = 0; k < labels.size(); ++k) {
      const bool is_true = answered.set.targets.outputs[row * labels.size() + k] > 0;
      counts[k][(is_true ? 2 : 0) + (answer.taken[k] ? 1 : 0)] += 1;
    }
  }
  std::string text = "label,tn,fp,fn,tp\n";
  for (size_t k = 0; k < labels.size(); ++k) {
    text += fmt::format("{},{}\n", data::csv_field(labels[k]), fmt::join(counts[k], ","));
  }
  return text;
}

/// Returns the values of the selected outputs by name. If the model has only one output, returns
/// just its value.
template <class Value, class Wanted>
ordered_json by_name(
    const model::HeadSpec& head, const std::vector<Value>& values, const Wanted& wanted) {
  ordered_json object = ordered_json::object();
  for (size_t k = 0; k < head.labels.size(); ++k) {
    if (wanted(k)) {
      object[head.labels[k]] = values[k];
    }
  }
  return object;
}

ordered_json names_where(const model::HeadSpec& head, const std::vector<bool>& is_wanted) {
  ordered_json names = ordered_json::array();
  for (size_t k = 0; k < head.labels.size(); ++k) {
    if (is_wanted[k]) {
      names.push_back(head.labels[k]);
    }
  }
  return names;
}

/// Returns the true label, labels or numbers of a row.
ordered_json truth_of(const Answered& answered, size_t row) {
  const model::HeadSpec& head = answered.head;
  const data::RowTargets& targets = answered.set.targets;
  if (head.problem == ProblemType::kSingleLabel) {
    return head.labels[static_cast<size_t>(targets.classes[row])];
  }
  const auto begin =
      targets.outputs.begin() + static_cast<std::ptrdiff_t>(row * head.labels.size());
  const std::vector<float> own(begin, begin + std::ssize(head.labels));
  if (head.problem == ProblemType::kMultiLabel) {
    return names_where(head, {own.begin(), own.end()});
  }
  return own.size() == 1 ? ordered_json(own.front())
                         : by_name(head, own, [](size_t /*k*/) { return true; });
}

/// Returns the indices of the rows with a label, largest loss first.
std::vector<size_t> by_loss(const Judgement& judgement) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < judgement.losses.size(); ++row) {
    if (!std::isnan(judgement.losses[row])) {
      rows.push_back(row);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
    return judgement.losses[a] > judgement.losses[b];
  });
  rows.resize(std::min(rows.size(), kTopLosses));
  return rows;
}

double loss_of(const Answered& answered, size_t row, const Answer& answer) {
  const data::RowTargets& targets = answered.set.targets;
  const size_t outputs = answered.head.labels.size();
  if (answered.head.problem == ProblemType::kSingleLabel) {
    return -answer.logarithms[static_cast<size_t>(targets.classes[row])];
  }
  double sum = 0;
  for (size_t k = 0; k < outputs; ++k) {
    const double wanted = targets.outputs[row * outputs + k];
    sum += answered.head.problem == ProblemType::kRegression
               ? std::pow(answer.scores[k] - wanted, 2)
           : wanted > 0 ? -answer.logarithms[k]
                        : -answer.against[k];
  }
  return sum / static_cast<double>(outputs);
}

/// Formats a string as Python prints it in a list.
std::string python_text(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : text) {
    result += c == '\\' || c == quote ? std::string("\\") + c
              : c == '\n'             ? "\\n"
              : c == '\t'             ? "\\t"
                                      : std::string(1, c);
  }
  return result + quote;
}

}  // namespace

std::string prediction_line(const Answered& answered, size_t row) {
  const model::HeadSpec& head = answered.head;
  const data::LabelledRow& read = answered.set.rows.rows[row];
  const Answer answer = answer_of(answered.logits, row, head.problem, answered.thresholds);
  const bool has_label = answered.set.targets.classes[row] >= 0;
  ordered_json line{{"index", row}, {"text", read.text}};
  if (!read.pair.empty()) {
    line["pair"] = read.pair;
  }
  if (has_label) {
    line["label"] = truth_of(answered, row);
  }
  const auto everything = [](size_t /*k*/) { return true; };
  if (head.problem == ProblemType::kSingleLabel) {
    const auto likeliest = static_cast<size_t>(answer.likeliest);
    line["prediction"] = head.labels[likeliest];
    line["probability"] = answer.scores[likeliest];
  } else if (head.problem == ProblemType::kMultiLabel) {
    line["prediction"] = names_where(head, answer.taken);
  } else {
    line["prediction"] = answer.scores.size() == 1 ? ordered_json(answer.scores.front())
                                                   : by_name(head, answer.scores, everything);
  }
  if (has_label) {
    line["loss"] = loss_of(answered, row, answer);
  }
  if (head.problem != ProblemType::kRegression && answered.shown == Shown::kAll) {
    line["probabilities"] = by_name(head, answer.scores, everything);
  } else if (head.problem == ProblemType::kMultiLabel) {
    line["probabilities"] =
        by_name(head, answer.scores, [&](size_t k) { return bool{answer.taken[k]}; });
  }
  return line_of(line);
}

std::string predict_results(const Answered& answered) {
  const model::HeadSpec& head = answered.head;
  std::string text = "index\tprediction\n";
  for (size_t row = 0; row < answered.set.targets.classes.size(); ++row) {
    const Answer answer = answer_of(answered.logits, row, head.problem, answered.thresholds);
    std::vector<std::string> words;
    for (size_t k = 0; k < head.labels.size(); ++k) {
      if (head.problem == ProblemType::kRegression) {
        words.push_back(fmt::format("{:3.3f}", answer.scores[k]));
      } else if (answer.taken[k]) {
        words.push_back(
            head.problem == ProblemType::kMultiLabel ? python_text(head.labels[k])
                                                     : head.labels[k]);
      }
    }
    const bool is_list = head.problem == ProblemType::kMultiLabel ||
                         (head.problem == ProblemType::kRegression && words.size() > 1);
    text += fmt::format(
        "{}\t{}{}{}\n", row, is_list ? "[" : "", fmt::join(words, ", "), is_list ? "]" : "");
  }
  return text;
}

std::string report_text(const Judgement& judgement, const model::HeadSpec& head) {
  if (judgement.report) {
    return metrics::to_text(*judgement.report);
  }
  size_t width = 6;
  for (const std::string& label : head.labels) {
    width = std::max(width, label.size());
  }
  std::string text = fmt::format(
      "{:>{}}  {:>10} {:>10} {:>10} {:>8} {:>8}\n\n",
      "",
      width,
      "mse",
      "rmse",
      "mae",
      "pearson",
      "spearman");
  for (size_t k = 0; k < judgement.numbers.size(); ++k) {
    const metrics::RegressionFigures& figures = judgement.numbers[k];
    text += fmt::format(
        "{:>{}}  {:>10.5g} {:>10.5g} {:>10.5g} {:>8.4f} {:>8.4f}\n",
        head.labels[k],
        width,
        figures.mse,
        figures.rmse,
        figures.mae,
        figures.pearson,
        figures.spearman);
  }
  return text;
}

ordered_json report_json(const Judgement& judgement, const model::HeadSpec& head) {
  if (judgement.report) {
    return metrics::to_json(*judgement.report);
  }
  const auto number = [](double value) {
    return std::isnan(value) ? ordered_json() : ordered_json(value);
  };
  ordered_json json = ordered_json::object();
  for (size_t k = 0; k < judgement.numbers.size(); ++k) {
    const metrics::RegressionFigures& figures = judgement.numbers[k];
    json[head.labels[k]] = {
        {"mse", number(figures.mse)},
        {"rmse", number(figures.rmse)},
        {"mae", number(figures.mae)},
        {"r2", number(figures.r2)},
        {"pearson", number(figures.pearson)},
        {"spearman", number(figures.spearman)}};
  }
  return json;
}

void write_answers(
    const std::filesystem::path& folder, const Answered& answered, const std::string& suffix) {
  std::string lines;
  for (size_t row = 0; row < answered.set.targets.classes.size(); ++row) {
    lines += prediction_line(answered, row) + "\n";
  }
  write_file_atomically(folder / fmt::format("predictions{}.jsonl", suffix), lines);
  write_file_atomically(
      folder / fmt::format("predict_results{}.txt", suffix), predict_results(answered));
}

void write_judgement(
    const std::filesystem::path& folder,
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<std::string>& history) {
  create_folders(folder);
  if (judgement.rows == 0) {  // no labels: only predictions are available
    write_answers(folder, answered);
    return;
  }
  const auto write = [&](const char* name, const std::string& text) {
    write_file_atomically(folder / name, text);
  };
  const model::HeadSpec& head = answered.head;
  if (judgement.report) {
    write("classification_report.txt", report_text(judgement, head));
    write("classification_report.json", report_json(judgement, head).dump(2) + "\n");
  } else {
    write("regression_report.json", report_json(judgement, head).dump(2) + "\n");
  }
  if (head.problem == ProblemType::kSingleLabel) {
    write("confusion_matrix.csv", confusion_csv(judgement.confusion, head.labels));
    write("most_confused.csv", confused_csv(judgement.confusion, head.labels));
    write("calibration.csv", calibration_csv(calibration_of(answered, kBins)));
  } else if (head.problem == ProblemType::kMultiLabel) {
    write("multilabel_confusion.csv", labels_csv(answered));
  }
  std::string worst;
  const std::vector<size_t> worst_rows = by_loss(judgement);
  for (const size_t row : worst_rows) {
    worst += prediction_line(answered, row) + "\n";
  }
  write_answers(folder, answered);
  write("top_losses.jsonl", worst);
  const std::vector<ReportPicture> pictures = report_pictures(judgement, answered, history);
  for (const ReportPicture& picture : pictures) {
    write(picture.file.c_str(), picture.svg);
  }
  write("report.html", report_page(judgement, answered, worst_rows, pictures));
}

}  // namespace lockstep::train
