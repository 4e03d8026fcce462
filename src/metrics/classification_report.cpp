// Implements the classification report and its text and JSON forms.
#include "metrics/classification_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::metrics {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

ClassFigures figures_of(std::string name, const ClassCounts& counts, double zero_division) {
  const auto share = [&](double part, double whole) {
    return whole > 0 ? part / whole : zero_division;
  };
  return {
      std::move(name),
      share(counts.hits, counts.predicted),
      share(counts.hits, counts.support),
      share(2 * counts.hits, counts.predicted + counts.support),
      counts.support};
}

/// Returns the weighted mean of the values that are not NaN, or their unweighted mean if all
/// weights are zero.
template <class Weight>
double mean(const std::vector<ClassFigures>& rows, double ClassFigures::* figure, Weight weight) {
  double sum = 0, weights = 0, plain = 0;
  int64_t count = 0;
  for (const ClassFigures& row : rows) {
    const double value = row.*figure;
    if (!std::isnan(value)) {
      sum += weight(row) * value;
      weights += weight(row);
      plain += value;
      ++count;
    }
  }
  return count == 0 ? kNone : weights > 0 ? sum / weights : plain / static_cast<double>(count);
}

template <class Weight>
ClassFigures means(
    const char* name, const std::vector<ClassFigures>& rows, double support, Weight weight) {
  return {
      name,
      mean(rows, &ClassFigures::precision, weight),
      mean(rows, &ClassFigures::recall, weight),
      mean(rows, &ClassFigures::f1, weight),
      support};
}

double one(const ClassFigures& /*row*/) {
  return 1;
}

ClassificationReport report_of(
    const std::vector<ClassCounts>& counts,
    const std::vector<std::string>& names,
    double zero_division) {
  ClassificationReport report;
  ClassCounts all;
  for (size_t k = 0; k < counts.size(); ++k) {
    report.classes.push_back(figures_of(names.at(k), counts[k], zero_division));
    all.hits += counts[k].hits;
    all.predicted += counts[k].predicted;
    all.support += counts[k].support;
  }
  report.micro = figures_of("micro avg", all, zero_division);
  report.macro = means("macro avg", report.classes, all.support, one);
  report.weighted = means("weighted avg", report.classes, all.support, [](const ClassFigures& row) {
    return row.support;
  });
  return report;
}

size_t code_points(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width - std::min(width, code_points(text)), ' ') + text;
}

/// Formats a float as Python does.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

/// Builds the lines of a report under one header.
class Lines {
 public:
  Lines(const ClassificationReport& report, int digits)
      : has_weights_(report.has_weights),
        digits_(digits) {
    width_ = std::max<size_t>(std::string_view("weighted avg").size(), static_cast<size_t>(digits));
    for (const ClassFigures& row : report.classes) {
      width_ = std::max(width_, code_points(row.name));
    }
    text_ = fmt::format(
        "{}  {:>9} {:>9} {:>9} {:>9}\n\n",
        std::string(width_, ' '),
        "precision",
        "recall",
        "f1-score",
        "support");
  }

  void row(const ClassFigures& row) {
    text_ += fmt::format(
        "{}  {:>9} {:>9} {:>9} {:>9}\n",
        right_aligned(row.name, width_),
        figure(row.precision),
        figure(row.recall),
        figure(row.f1),
        support(row.support));
  }
  void accuracy(double value, double rows) {
    text_ += fmt::format(
        "{}  {:>9} {:>9} {:>9} {:>9}\n",
        right_aligned("accuracy", width_),
        "",
        "",
        figure(value),
        support(rows));
  }
  void blank() { text_ += '\n'; }
  std::string take() { return std::move(text_); }

 private:
  std::string figure(double value) const {
    return std::isnan(value) ? "nan" : fmt::format("{:.{}f}", value, digits_);
  }
  std::string support(double value) const {
    return has_weights_ ? float_text(value) : fmt::format("{:.0f}", value);
  }

  bool has_weights_;
  int digits_;
  size_t width_ = 0;
  std::string text_;
};

nlohmann::ordered_json number(double value) {
  return std::isnan(value) ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}

}  // namespace

ClassificationReport make_report(
    const Outcomes& outcomes, const std::vector<std::string>& names, double zero_division) {
  const auto classes = static_cast<int64_t>(names.size());
  ClassificationReport report = report_of(count_classes(outcomes, classes), names, zero_division);
  const auto is_class = [&](int64_t number) { return number >= 0 && number < classes; };
  if (std::all_of(outcomes.truth.begin(), outcomes.truth.end(), is_class) &&
      std::all_of(outcomes.predicted.begin(), outcomes.predicted.end(), is_class)) {
    report.accuracy = accuracy(outcomes);
  }
  report.has_weights = !outcomes.weights.empty();
  return report;
}

ClassificationReport make_report(
    const std::vector<std::vector<bool>>& truth,
    const std::vector<std::vector<bool>>& predicted,
    const std::vector<std::string>& names,
    double zero_division) {
  std::vector<ClassCounts> counts(names.size());
  std::vector<ClassFigures> rows;
  for (size_t row = 0; row < truth.size(); ++row) {
    ClassCounts here;
    for (size_t k = 0; k < names.size(); ++k) {
      const bool is_true = truth[row].at(k), is_predicted = predicted.at(row).at(k);
      for (ClassCounts* count : {&counts[k], &here}) {
        count->hits += is_true && is_predicted ? 1 : 0;
        count->predicted += is_predicted ? 1 : 0;
        count->support += is_true ? 1 : 0;
      }
    }
    rows.push_back(figures_of("", here, zero_division));
  }
  ClassificationReport report = report_of(counts, names, zero_division);
  report.samples = means("samples avg", rows, report.micro.support, one);
  return report;
}

std::string to_text(const ClassificationReport& report, int digits) {
  Lines lines(report, digits);
  for (const ClassFigures& row : report.classes) {
    lines.row(row);
  }
  lines.blank();
  if (report.accuracy) {
    lines.accuracy(*report.accuracy, report.micro.support);
  } else {
    lines.row(report.micro);
  }
  lines.row(report.macro);
  lines.row(report.weighted);
  if (report.samples) {
    lines.row(*report.samples);
  }
  return lines.take();
}

nlohmann::ordered_json to_json(const ClassificationReport& report) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const auto add = [&](const ClassFigures& row) {
    json[row.name] = {
        {"precision", number(row.precision)},
        {"recall", number(row.recall)},
        {"f1-score", number(row.f1)},
        {"support", number(row.support)}};
  };
  for (const ClassFigures& row : report.classes) {
    add(row);
  }
  if (report.accuracy) {
    json["accuracy"] = number(*report.accuracy);
  } else {
    add(report.micro);
  }
  add(report.macro);
  add(report.weighted);
  if (report.samples) {
    add(*report.samples);
  }
  return json;
}

}  // namespace lockstep::metrics
