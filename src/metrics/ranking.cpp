// Implements ranking metrics: ROC and precision-recall curves, calibration, thresholds.
#include "metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::metrics {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// Numbers of rows at or above a threshold: rows with the label (hits) and rows without it
/// (others).
struct Above {
  double score = 0;
  int64_t hits = 0, others = 0;
};

/// Returns one entry per distinct score, in descending order of score.
std::vector<Above> thresholds_of(const Ranking& ranking) {
  std::vector<size_t> order(ranking.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return ranking.scores[a] > ranking.scores[b];
  });
  std::vector<Above> thresholds;
  Above above;
  for (size_t i = 0; i < order.size(); ++i) {
    above.score = ranking.scores[order[i]];
    (ranking.truth[order[i]] ? above.hits : above.others) += 1;
    if (i + 1 == order.size() || ranking.scores[order[i + 1]] != above.score) {
      thresholds.push_back(above);
    }
  }
  return thresholds;
}

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

double f1_of(const Above& above, int64_t positives) {
  return ratio(2 * above.hits, above.hits + above.others + positives);
}

}  // namespace

Ranking ranking_of(const Truths& truth, const Scores& scores, size_t k) {
  Ranking ranking;
  for (size_t row = 0; row < truth.size(); ++row) {
    ranking.truth.push_back(truth[row].at(k));
    ranking.scores.push_back(scores[row].at(k));
  }
  return ranking;
}

Ranking all_rankings(const Truths& truth, const Scores& scores) {
  Ranking ranking;
  for (size_t row = 0; row < truth.size(); ++row) {
    ranking.truth.insert(ranking.truth.end(), truth[row].begin(), truth[row].end());
    ranking.scores.insert(ranking.scores.end(), scores[row].begin(), scores[row].end());
  }
  return ranking;
}

Truths one_of_each(const std::vector<int64_t>& classes, int64_t count) {
  Truths truth;
  for (const int64_t number : classes) {
    truth.emplace_back(static_cast<size_t>(count), false);
    if (number >= 0) {
      truth.back().at(static_cast<size_t>(number)) = true;
    }
  }
  return truth;
}

Curve roc_curve(const Ranking& ranking) {
  const std::vector<Above> thresholds = thresholds_of(ranking);
  if (thresholds.empty() || thresholds.back().hits == 0 || thresholds.back().others == 0) {
    return {};
  }
  Curve curve{{0}, {0}};
  for (const Above& above : thresholds) {
    curve.x.push_back(ratio(above.others, thresholds.back().others));
    curve.y.push_back(ratio(above.hits, thresholds.back().hits));
  }
  return curve;
}

Curve precision_recall_curve(const Ranking& ranking) {
  const std::vector<Above> thresholds = thresholds_of(ranking);
  if (thresholds.empty() || thresholds.back().hits == 0) {
    return {};
  }
  Curve curve{{0}, {1}};
  for (const Above& above : thresholds) {
    curve.x.push_back(ratio(above.hits, thresholds.back().hits));
    curve.y.push_back(ratio(above.hits, above.hits + above.others));
  }
  return curve;
}

double roc_auc(const Ranking& ranking) {
  const Curve curve = roc_curve(ranking);
  double area = curve.x.empty() ? kNoValue : 0;
  for (size_t i = 1; i < curve.x.size(); ++i) {
    area += (curve.x[i] - curve.x[i - 1]) * (curve.y[i] + curve.y[i - 1]) / 2;
  }
  return area;
}

double average_precision(const Ranking& ranking) {
  const Curve curve = precision_recall_curve(ranking);
  double sum = 0;
  for (size_t i = 1; i < curve.x.size(); ++i) {
    sum += (curve.x[i] - curve.x[i - 1]) * curve.y[i];
  }
  return sum;
}

double mean_over_labels(
    const Truths& truth, const Scores& scores, double (*measure)(const Ranking& ranking)) {
  const size_t labels = truth.empty() ? 0 : truth.front().size();
  double sum = 0;
  for (size_t k = 0; k < labels; ++k) {
    sum += measure(ranking_of(truth, scores, k));
  }
  return sum / static_cast<double>(labels);
}

double top_k_accuracy(const std::vector<int64_t>& classes, const Scores& scores, int64_t k) {
  int64_t hits = 0;
  for (size_t row = 0; row < classes.size(); ++row) {
    const auto own = static_cast<size_t>(classes[row]);
    int64_t before = 0;
    for (size_t other = 0; other < scores[row].size(); ++other) {
      const bool is_equal = scores[row][other] == scores[row][own];
      before += scores[row][other] > scores[row][own] || (is_equal && other > own) ? 1 : 0;
    }
    hits += before < k ? 1 : 0;
  }
  return ratio(hits, static_cast<int64_t>(classes.size()));
}

double label_ranking_average_precision(const Truths& truth, const Scores& scores) {
  double sum = 0;
  for (size_t row = 0; row < truth.size(); ++row) {
    const auto labels = std::count(truth[row].begin(), truth[row].end(), true);
    double of_row = labels == 0 ? 1 : 0;
    for (size_t k = 0; k < truth[row].size(); ++k) {
      if (!truth[row][k]) {
        continue;
      }
      int64_t as_high = 0, own = 0;
      for (size_t other = 0; other < truth[row].size(); ++other) {
        const bool is_above = scores[row][other] >= scores[row][k];
        as_high += is_above ? 1 : 0;
        own += is_above && truth[row][other] ? 1 : 0;
      }
      of_row += ratio(own, as_high) / static_cast<double>(labels);
    }
    sum += of_row;
  }
  return sum / static_cast<double>(truth.size());
}

double brier_score(const std::vector<int64_t>& classes, const Scores& probabilities) {
  double sum = 0;
  for (size_t row = 0; row < classes.size(); ++row) {
    for (size_t k = 0; k < probabilities[row].size(); ++k) {
      const double truth = static_cast<int64_t>(k) == classes[row] ? 1 : 0;
      sum += (probabilities[row][k] - truth) * (probabilities[row][k] - truth);
    }
  }
  const bool is_binary = !probabilities.empty() && probabilities.front().size() == 2;
  return sum / static_cast<double>(classes.size()) / (is_binary ? 2 : 1);
}

std::vector<CalibrationBin> calibration(
    const std::vector<double>& confidences, const std::vector<bool>& hits, int64_t bins) {
  std::vector<CalibrationBin> result;
  for (int64_t bin = 0; bin < bins; ++bin) {
    result.push_back({ratio(bin, bins), ratio(bin + 1, bins)});
  }
  for (size_t row = 0; row < confidences.size(); ++row) {
    const auto upper =
        static_cast<int64_t>(std::ceil(confidences[row] * static_cast<double>(bins)));
    CalibrationBin& bin = result[static_cast<size_t>(std::clamp<int64_t>(upper - 1, 0, bins - 1))];
    bin.rows += 1;
    bin.confidence += confidences[row];
    bin.accuracy += hits[row] ? 1 : 0;
  }
  for (CalibrationBin& bin : result) {
    const auto rows = static_cast<double>(std::max<int64_t>(bin.rows, 1));
    bin.confidence /= rows;
    bin.accuracy /= rows;
  }
  return result;
}

double expected_calibration_error(const std::vector<CalibrationBin>& bins) {
  double sum = 0, rows = 0;
  for (const CalibrationBin& bin : bins) {
    sum += static_cast<double>(bin.rows) * std::abs(bin.accuracy - bin.confidence);
    rows += static_cast<double>(bin.rows);
  }
  return sum / rows;
}

double best_threshold(const Ranking& ranking) {
  const std::vector<Above> thresholds = thresholds_of(ranking);
  if (thresholds.empty() || thresholds.back().hits == 0) {
    return 0.5;
  }
  const int64_t positives = thresholds.back().hits;
  double best = 0.5, best_f1 = 0;
  for (const Above& above : thresholds) {  // F1 at threshold 0.5
    best_f1 = above.score > 0.5 ? f1_of(above, positives) : best_f1;
  }
  for (size_t i = 0; i + 1 < thresholds.size(); ++i) {
    const double middle = (thresholds[i].score + thresholds[i + 1].score) / 2;
    const double f1 = f1_of(thresholds[i], positives);
    if (f1 > best_f1 || (f1 == best_f1 && std::abs(middle - 0.5) < std::abs(best - 0.5))) {
      best = middle;
      best_f1 = f1;
    }
  }
  return best;
}

}  // namespace lockstep::metrics
