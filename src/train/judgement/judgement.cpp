// Computes the loss and the metrics of a classifier's predictions.
#include "train/judgement/judgement.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::train {
namespace {

using model::ProblemType;

constexpr int64_t kCalibrationBins = 15, kTopClasses = 3;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr std::string_view kSingleMetrics[] = {
    "accuracy",
    "f1",
    "precision",
    "recall",
    "f1_macro",
    "precision_macro",
    "recall_macro",
    "f1_micro",
    "precision_micro",
    "recall_micro",
    "f1_weighted",
    "precision_weighted",
    "recall_weighted",
    "balanced_accuracy",
    "matthews_correlation",
    "cohen_kappa",
    "log_loss",
    "brier",
    "ece",
    "top_3_accuracy",
    "roc_auc",
    "average_precision"};
constexpr std::string_view kLabelMetrics[] = {
    "f1",
    "accuracy",
    "precision",
    "recall",
    "f1_macro",
    "precision_macro",
    "recall_macro",
    "f1_micro",
    "precision_micro",
    "recall_micro",
    "f1_weighted",
    "precision_weighted",
    "recall_weighted",
    "f1_samples",
    "precision_samples",
    "recall_samples",
    "hamming_loss",
    "jaccard_samples",
    "label_ranking_average_precision",
    "roc_auc_macro",
    "roc_auc_micro",
    "average_precision_macro",
    "average_precision_micro"};
constexpr std::string_view kNumberMetrics[] = {"mse", "spearman", "rmse", "mae", "r2", "pearson"};

/// Returns log sigmoid(x).
double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

/// Rows with a label, in order, and their predictions.
struct LabelledAnswers {
  std::vector<size_t> rows;
  std::vector<Answer> answers;

  metrics::Scores scores() const {
    metrics::Scores scores;
    for (const Answer& answer : answers) {
      scores.push_back(answer.scores);
    }
    return scores;
  }
};

/// Adds the metrics that are not NaN.
void add_metrics(
    Judgement& judgement, std::initializer_list<std::pair<const char*, double>> metrics) {
  for (const auto& [name, value] : metrics) {
    if (!std::isnan(value)) {
      judgement.metrics.emplace_back(name, value);
    }
  }
}

/// Loss and weight of one row, as in objective::class_cross_entropy.
struct RowLoss {
  double loss = 0, weight = 0;
};
RowLoss class_loss(const Answer& answer, size_t own, const objective::ClassOptions& options) {
  const auto weight = [&](size_t k) { return options.weights.empty() ? 1 : options.weights[k]; };
  const double doubt =
      options.focal_gamma > 0 ? std::pow(1 - answer.scores[own], options.focal_gamma) : 1;
  double spread = 0;
  for (size_t k = 0; options.label_smoothing > 0 && k < answer.scores.size(); ++k) {
    spread -= weight(k) * answer.logarithms[k] / static_cast<double>(answer.scores.size());
  }
  const double share = options.label_smoothing;
  return {share * spread - (1 - share) * weight(own) * doubt * answer.logarithms[own], weight(own)};
}

/// Adds the metrics that are computed from probabilities and do not depend on thresholds.
void add_ranking(
    Judgement& judgement,
    const LabelledAnswers& labelled,
    const metrics::Outcomes& outcomes,
    size_t labels,
    size_t positive) {
  const metrics::Scores scores = labelled.scores();
  std::vector<double> confidences;
  std::vector<bool> hits;
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto likeliest = static_cast<size_t>(labelled.answers[i].likeliest);
    confidences.push_back(scores[i][likeliest]);
    hits.push_back(outcomes.predicted[i] == outcomes.truth[i]);
  }
  const metrics::Truths truth = metrics::one_of_each(outcomes.truth, static_cast<int64_t>(labels));
  const bool is_binary = labels == 2;
  add_metrics(
      judgement,
      {{"brier", metrics::brier_score(outcomes.truth, scores)},
       {"ece",
        metrics::expected_calibration_error(
            metrics::calibration(confidences, hits, kCalibrationBins))},
       {"top_3_accuracy",
        labels > kTopClasses ? metrics::top_k_accuracy(outcomes.truth, scores, kTopClasses) : kNaN},
       {"roc_auc",
        is_binary ? metrics::roc_auc(metrics::ranking_of(truth, scores, positive))
                  : metrics::mean_over_labels(truth, scores, metrics::roc_auc)},
       {"average_precision",
        is_binary ? metrics::average_precision(metrics::ranking_of(truth, scores, positive))
                  : kNaN}});
}

void judge_classes(
    Judgement& judgement,
    const LabelledAnswers& labelled,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    const JudgeOptions& options) {
  metrics::Outcomes outcomes;
  double log_loss = 0, weights = 0;
  for (size_t i = 0; i < labelled.rows.size(); ++i) {
    const Answer& answer = labelled.answers[i];
    const auto own = static_cast<size_t>(targets.classes[labelled.rows[i]]);
    outcomes.truth.push_back(targets.classes[labelled.rows[i]]);
    outcomes.predicted.push_back(answer.likeliest);
    const RowLoss loss = class_loss(answer, own, options.loss);
    judgement.loss += loss.loss;
    weights += loss.weight;
    log_loss -= answer.logarithms[own];
    judgement.losses[labelled.rows[i]] = -answer.logarithms[own];
  }
  judgement.loss /= weights > 0 ? weights : 1;
  judgement.report = metrics::make_report(outcomes, head.labels);
  judgement.confusion = metrics::confusion_matrix(outcomes, std::ssize(head.labels));
  const metrics::ClassFigures& macro = judgement.report->macro;
  const metrics::ClassFigures& weighted = judgement.report->weighted;
  const metrics::ClassFigures& micro = judgement.report->micro;
  // For two classes, f1, precision and recall are those of the positive class.
  const metrics::ClassFigures& usual =
      head.labels.size() == 2 ? judgement.report->classes.at(options.positive) : macro;
  add_metrics(
      judgement,
      {{"accuracy", metrics::accuracy(outcomes)},
       {"f1", usual.f1},
       {"precision", usual.precision},
       {"recall", usual.recall},
       {"f1_macro", macro.f1},
       {"precision_macro", macro.precision},
       {"recall_macro", macro.recall},
       {"f1_micro", micro.f1},
       {"precision_micro", micro.precision},
       {"recall_micro", micro.recall},
       {"f1_weighted", weighted.f1},
       {"precision_weighted", weighted.precision},
       {"recall_weighted", weighted.recall},
       {"balanced_accuracy", metrics::balanced_accuracy(outcomes)},
       {"matthews_correlation", metrics::matthews_correlation(outcomes)},
       {"cohen_kappa", metrics::cohen_kappa(outcomes)},
       {"log_loss", log_loss / static_cast<double>(judgement.rows)}});
  add_ranking(judgement, labelled, outcomes, head.labels.size(), options.positive);
}

/// Returns the mean of objective::label_cross_entropy over the labels of a row.
double labels_loss(
    const Answer& answer, const float* wanted, const objective::ClassOptions& options) {
  double sum = 0;
  for (size_t k = 0; k < answer.scores.size(); ++k) {
    const double weight = options.weights.empty() ? 1 : options.weights[k];
    const double has = answer.logarithms[k], has_not = answer.against[k];
    const double gamma = options.focal_gamma;
    sum -=
        wanted[k] > 0 ? weight * has * std::exp(gamma * has_not) : has_not * std::exp(gamma * has);
  }
  return sum / static_cast<double>(answer.scores.size());
}

void add_label_metrics(
    Judgement& judgement,
    const metrics::Truths& truth,
    const metrics::Truths& taken,
    const metrics::Scores& scores) {
  const metrics::ClassificationReport& report = *judgement.report;
  const auto labels = static_cast<double>(truth.front().size());
  const auto rows = static_cast<double>(truth.size());
  double equal = 0, wrong = 0, jaccard = 0;
  for (size_t row = 0; row < truth.size(); ++row) {
    double both = 0, any = 0;
    for (size_t k = 0; k < truth[row].size(); ++k) {
      both += truth[row][k] && taken[row][k] ? 1 : 0;
      any += truth[row][k] || taken[row][k] ? 1 : 0;
    }
    equal += both == any ? 1 : 0;
    wrong += (any - both) / labels;
    jaccard += any > 0 ? both / any : 0;
  }
  const metrics::Ranking all = metrics::all_rankings(truth, scores);
  add_metrics(
      judgement,
      {{"f1", report.micro.f1},
       {"accuracy", equal / rows},
       {"precision", report.micro.precision},
       {"recall", report.micro.recall},
       {"f1_macro", report.macro.f1},
       {"precision_macro", report.macro.precision},
       {"recall_macro", report.macro.recall},
       {"f1_micro", report.micro.f1},
       {"precision_micro", report.micro.precision},
       {"recall_micro", report.micro.recall},
       {"f1_weighted", report.weighted.f1},
       {"precision_weighted", report.weighted.precision},
       {"recall_weighted", report.weighted.recall},
       {"f1_samples", report.samples->f1},
       {"precision_samples", report.samples->precision},
       {"recall_samples", report.samples->recall},
       {"hamming_loss", wrong / rows},
       {"jaccard_samples", jaccard / rows},
       {"label_ranking_average_precision", metrics::label_ranking_average_precision(truth, scores)},
       {"roc_auc_macro", metrics::mean_over_labels(truth, scores, metrics::roc_auc)},
       {"roc_auc_micro", metrics::roc_auc(all)},
       {"average_precision_macro",
        metrics::mean_over_labels(truth, scores, metrics::average_precision)},
       {"average_precision_micro", metrics::average_precision(all)}});
}

metrics::Truths truths_of(const data::RowTargets& targets, const std::vector<size_t>& rows) {
  const size_t labels = targets.outputs.size() / std::max<size_t>(targets.classes.size(), 1);
  metrics::Truths truth;
  for (const size_t row : rows) {
    truth.emplace_back();
    for (size_t k = 0; k < labels; ++k) {
      truth.back().push_back(targets.outputs[row * labels + k] > 0);
    }
  }
  return truth;
}

void judge_labels(
    Judgement& judgement,
    const LabelledAnswers& labelled,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    const objective::ClassOptions& options) {
  metrics::Truths taken;
  for (size_t i = 0; i < labelled.rows.size(); ++i) {
    const size_t row = labelled.rows[i];
    const float* wanted = targets.outputs.data() + row * head.labels.size();
    judgement.loss += labels_loss(labelled.answers[i], wanted, options);
    judgement.losses[row] = labels_loss(labelled.answers[i], wanted, {});
    taken.push_back(labelled.answers[i].taken);
  }
  judgement.loss /= static_cast<double>(judgement.rows);
  const metrics::Truths truth = truths_of(targets, labelled.rows);
  judgement.report = metrics::make_report(truth, taken, head.labels);
  add_label_metrics(judgement, truth, taken, labelled.scores());
}

void judge_numbers(
    Judgement& judgement,
    const LabelledAnswers& labelled,
    const data::RowTargets& targets,
    const model::HeadSpec& head) {
  const size_t outputs = head.labels.size();
  std::vector<std::vector<double>> truth(outputs), predicted(outputs);
  for (size_t i = 0; i < labelled.rows.size(); ++i) {
    double& loss = judgement.losses[labelled.rows[i]] = 0;
    for (size_t k = 0; k < outputs; ++k) {
      truth[k].push_back(targets.outputs[labelled.rows[i] * outputs + k]);
      predicted[k].push_back(labelled.answers[i].scores[k]);
      loss += std::pow(predicted[k].back() - truth[k].back(), 2) / static_cast<double>(outputs);
    }
  }
  for (size_t k = 0; k < outputs; ++k) {
    judgement.numbers.push_back(metrics::measure_numbers(truth[k], predicted[k]));
  }
  const metrics::RegressionFigures mean = metrics::mean_of(judgement.numbers);
  judgement.loss = mean.mse;
  add_metrics(
      judgement,
      {{"mse", mean.mse},
       {"spearman", mean.spearman},
       {"rmse", mean.rmse},
       {"mae", mean.mae},
       {"r2", mean.r2},
       {"pearson", mean.pearson}});
}

/// Keeps the requested metrics that have a value, in the requested order.
void choose_metrics(Judgement& judgement, const std::vector<std::string>& wanted) {
  if (wanted.empty()) {
    return;
  }
  std::vector<std::pair<std::string, double>> chosen;
  for (const std::string& name : wanted) {
    const auto found =
        std::ranges::find(judgement.metrics, name, [](const auto& metric) { return metric.first; });
    if (found != judgement.metrics.end()) {
      chosen.push_back(*found);
    }
  }
  judgement.metrics = std::move(chosen);
}

LabelledAnswers answers_of(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    model::ProblemType problem,
    const std::vector<double>& thresholds) {
  LabelledAnswers labelled;
  for (size_t row = 0; row < targets.classes.size(); ++row) {
    if (targets.classes[row] >= 0) {
      labelled.rows.push_back(row);
      labelled.answers.push_back(answer_of(logits, row, problem, thresholds));
    }
  }
  return labelled;
}

}  // namespace

Answer answer_of(
    const at::Tensor& logits,
    size_t row,
    model::ProblemType problem,
    const std::vector<double>& thresholds) {
  const int64_t outputs = logits.size(1);
  const float* own = logits.const_data_ptr<float>() + static_cast<int64_t>(row) * outputs;
  Answer answer;
  if (problem == ProblemType::kSingleLabel) {
    metrics::Softmax found = metrics::softmax(own, outputs);
    answer.likeliest = found.likeliest;
    if (thresholds.size() == 1 && outputs == 2) {
      answer.likeliest = found.probabilities[1] > thresholds.front() ? 1 : 0;
    }
    answer.scores = std::move(found.probabilities);
    answer.logarithms = std::move(found.logarithms);
    answer.taken.assign(static_cast<size_t>(outputs), false);
    answer.taken[static_cast<size_t>(answer.likeliest)] = true;
    return answer;
  }
  for (int64_t k = 0; k < outputs; ++k) {
    const auto logit = static_cast<double>(own[k]);
    if (problem == ProblemType::kRegression) {
      answer.scores.push_back(logit);
      continue;
    }
    answer.logarithms.push_back(log_sigmoid(logit));
    answer.against.push_back(log_sigmoid(-logit));
    answer.scores.push_back(std::exp(answer.logarithms.back()));
    const double threshold = thresholds.empty() ? 0.5 : thresholds.at(static_cast<size_t>(k));
    answer.taken.push_back(answer.scores.back() > threshold);
  }
  return answer;
}

double Judgement::metric(std::string_view name) const {
  const auto found = std::find_if(
      metrics.begin(), metrics.end(), [&](const auto& metric) { return metric.first == name; });
  return name == "loss" ? loss : found == metrics.end() ? kNaN : found->second;
}

Judgement judge(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    const JudgeOptions& options) {
  Judgement judgement;
  const LabelledAnswers labelled = answers_of(logits, targets, head.problem, options.thresholds);
  judgement.rows = std::ssize(labelled.rows);
  judgement.losses.assign(targets.classes.size(), kNaN);
  if (judgement.rows == 0) {
    return judgement;
  }
  switch (head.problem) {
    case ProblemType::kSingleLabel:
      judge_classes(judgement, labelled, targets, head, options);
      break;
    case ProblemType::kMultiLabel:
      judge_labels(judgement, labelled, targets, head, options.loss);
      break;
    case ProblemType::kRegression:
      judge_numbers(judgement, labelled, targets, head);
      break;
  }
  choose_metrics(judgement, options.metrics);
  return judgement;
}

std::span<const std::string_view> metric_names(model::ProblemType problem) {
  switch (problem) {
    case ProblemType::kMultiLabel:
      return kLabelMetrics;
    case ProblemType::kRegression:
      return kNumberMetrics;
    case ProblemType::kSingleLabel:
      break;
  }
  return kSingleMetrics;
}

std::vector<double> tune_thresholds(
    const at::Tensor& logits,
    const data::RowTargets& targets,
    const model::HeadSpec& head,
    size_t positive) {
  const LabelledAnswers labelled = answers_of(logits, targets, head.problem, {});
  const metrics::Scores scores = labelled.scores();
  std::vector<double> thresholds;
  if (head.problem == ProblemType::kMultiLabel) {
    const metrics::Truths truth = truths_of(targets, labelled.rows);
    for (size_t k = 0; k < head.labels.size(); ++k) {
      thresholds.push_back(metrics::best_threshold(metrics::ranking_of(truth, scores, k)));
    }
  } else if (head.problem == ProblemType::kSingleLabel && head.labels.size() == 2) {
    std::vector<int64_t> classes;
    for (const size_t row : labelled.rows) {
      classes.push_back(targets.classes[row]);
    }
    const double best = metrics::best_threshold(
        metrics::ranking_of(metrics::one_of_each(classes, 2), scores, positive));
    thresholds.push_back(positive == 1 ? best : 1 - best);  // the two probabilities sum to 1
  }
  return thresholds;
}

double fit_temperature(const at::Tensor& logits, const std::vector<int64_t>& classes) {
  const at::Tensor values = logits.to(at::kDouble).contiguous();
  const int64_t labels = values.size(1);
  const std::span all(values.const_data_ptr<double>(), static_cast<size_t>(values.numel()));
  const auto loss_at = [&](double logarithm) {
    const double scale = std::exp(-logarithm);
    double loss = 0;
    for (size_t row = 0; row < classes.size(); ++row) {
      if (classes[row] == data::kNoClass) {
        continue;
      }
      const auto own = all.subspan(row * static_cast<size_t>(labels), static_cast<size_t>(labels));
      const double largest = *std::max_element(own.begin(), own.end());
      double sum = 0;
      for (const double logit : own) {
        sum += std::exp((logit - largest) * scale);
      }
      loss += std::log(sum) - (own[static_cast<size_t>(classes[row])] - largest) * scale;
    }
    return loss;
  };
  if (std::ranges::all_of(classes, [](int64_t each) { return each == data::kNoClass; })) {
    return 1;
  }
  constexpr int kSteps = 60;
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double low = -3, high = 3;
  double left = high - ratio * (high - low), right = low + ratio * (high - low);
  double loss_left = loss_at(left), loss_right = loss_at(right);
  for (int step = 0; step < kSteps; ++step) {
    if (loss_left <= loss_right) {
      high = std::exchange(right, left);
      loss_right = loss_left;
      left = high - ratio * (high - low);
      loss_left = loss_at(left);
    } else {
      low = std::exchange(left, right);
      loss_left = loss_right;
      right = low + ratio * (high - low);
      loss_right = loss_at(right);
    }
  }
  return std::exp((low + high) / 2);
}

}  // namespace lockstep::train
