// Preference objectives: pairs (DPO and variants), reward models and unpaired answers.
#include <cmath>

#include <ATen/ATen.h>

#include "base/error.h"
#include "objective/objectives.h"
#include "objective/rows.h"

namespace lockstep::objective {
namespace {

/// Values per group, [B] each; 0 for groups that do not exist.
struct Pairs {
  Tensor exist;  // 1 if the group exists, otherwise 0
  Tensor chosen, rejected;
};

/// Returns log(p / (1 - p)) for log p < 0.
Tensor log_odds(const Tensor& log_p) {
  constexpr double kMost = -1e-12;  // log p = 0 would give infinite odds
  const Tensor below = log_p.clamp_max(kMost);
  return below - below.expm1().neg().log();
}

/// Returns the sum over each group, [B] -> [B].
Tensor sums_of_groups(const nn::Targets& targets, const Tensor& rows) {
  return at::zeros_like(rows).index_add(0, needed(targets.groups, "groups"), rows);
}

/// Returns the column of the row scores that belongs to the answer. If prompts are marked, they
/// have a separate column.
Tensor of_answers(const Tensor& scores) {
  return scores.dim() == 2 ? scores.select(1, 0) : scores;
}

class PairPreference final : public Objective {
 public:
  explicit PairPreference(const PreferenceOptions& options) : options_(options) {}
  Needs needs() const override { return Needs::kRowScores; }
  Counts counts(const nn::Targets& targets) const override {
    const Tensor chosen = of_kind(targets, nn::RowKind::kChosen);
    const double pairs = chosen.sum().item<double>();
    return has_likelihood() ? Counts({pairs, (chosen * tokens_of(targets)).sum().item<double>()})
                            : Counts(pairs);
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const override {
    const Tensor answers = of_answers(scores.log_likelihoods);
    const Tensor is_chosen = of_kind(targets, nn::RowKind::kChosen);
    const Tensor is_rejected = of_kind(targets, nn::RowKind::kRejected);
    const Tensor tokens = targets.counts.clamp_min(1);
    const Tensor gains =
        options_.reference ? answers - needed(targets.reference, "reference scores") : answers;
    const Tensor scored = options_.per_token ? gains / tokens : gains;
    const Pairs pairs{
        sums_of_groups(targets, is_chosen),
        sums_of_groups(targets, scored * is_chosen),
        sums_of_groups(targets, scored * is_rejected)};
    const Tensor preference = (losses(pairs) * pairs.exist).sum();
    // As TRL's trainers report these metrics: per token if there is no reference.
    const bool by_token = options_.per_token && !options_.reference;
    const Tensor rewards = options_.beta * (by_token ? scored : gains);
    const Tensor log_p = by_token ? answers / tokens : answers;
    const Tensor margins = sums_of_groups(targets, rewards * (is_chosen - is_rejected));
    std::vector<Tensor> sums{
        preference,
        pairs.exist.sum(),
        (margins.gt(0) * pairs.exist).sum(),
        (margins * pairs.exist).sum(),
        (rewards * is_chosen).sum(),
        (rewards * is_rejected).sum(),
        (log_p * is_chosen).sum(),
        (log_p * is_rejected).sum()};
    add_odds(pairs, sums);
    if (has_likelihood()) {
      const Tensor& all = scores.log_likelihoods;
      const Tensor rows = all.dim() == 2 ? all.sum(1) : all;
      const Tensor likelihood = -(rows * is_chosen).sum();
      sums.front() = preference + options_.likelihood * step.share(1) * likelihood;
      sums.insert(sums.end(), {preference, likelihood, (is_chosen * tokens_of(targets)).sum()});
    }
    return at::stack(sums);
  }
  std::vector<std::string> metrics() const override {
    std::vector<std::string> names{
        "rewards/accuracies",
        "rewards/margins",
        "rewards/chosen",
        "rewards/rejected",
        "logps/chosen",
        "logps/rejected"};
    if (options_.loss == PairLoss::kOddsRatio) {
      names.insert(names.end(), {"log_odds_ratio", "log_odds_chosen"});
    }
    return names;
  }
  int64_t sums() const override { return Objective::sums() + (has_likelihood() ? kOfTokens : 0); }
  /// The likelihood term is a mean over tokens, and the other terms are means over pairs. An
  /// evaluation knows both counts only at its end.
  Report report(std::span<const double> sums) const override {
    Report report = Objective::report(sums);
    if (has_likelihood()) {
      const auto last = sums.last(kOfTokens);
      const double likelihood = last[1] / (last[2] > 0 ? last[2] : 1);
      report.loss = last[0] / (sums[1] > 0 ? sums[1] : 1) + options_.likelihood * likelihood;
      report.metrics.emplace_back("nll_loss", likelihood);
    }
    return report;
  }

 private:
  static constexpr int64_t kOfTokens = 3;  // pair loss, sum of -log p, number of tokens

  bool has_likelihood() const { return options_.likelihood != 0; }
  static Tensor tokens_of(const nn::Targets& targets) {
    return targets.prompts.defined() ? targets.counts + targets.prompt_counts : targets.counts;
  }
  /// Returns the losses of the pairs, [B]. The value for a group that does not exist is arbitrary
  /// but finite.
  Tensor losses(const Pairs& pairs) const {
    const double beta = options_.beta, smoothing = options_.label_smoothing;
    const Tensor &c = pairs.chosen, &r = pairs.rejected;
    const Tensor m = beta * (c - r) - options_.margin;
    const auto log_s = [](const Tensor& x) { return at::log_sigmoid(x); };
    switch (options_.loss) {
      case PairLoss::kSigmoid:
        return -(1 - smoothing) * log_s(m) - smoothing * log_s(-m);
      case PairLoss::kHinge:
        return (1 - m).clamp_min(0);
      case PairLoss::kIpo:
        return (c - r - 0.5 / beta).square();
      case PairLoss::kExoPair:
        return m.sigmoid() * (log_s(m) - std::log1p(-smoothing)) +
               (-m).sigmoid() * (log_s(-m) - std::log(smoothing));
      case PairLoss::kNcaPair:
        return -log_s(beta * c) - 0.5 * (log_s(-beta * c) + log_s(-beta * r));
      case PairLoss::kRobust:
        return (smoothing * log_s(-m) - (1 - smoothing) * log_s(m)) / (1 - 2 * smoothing);
      case PairLoss::kBcoPair:
        return -log_s(beta * c) - log_s(-beta * r);
      case PairLoss::kSppoHard:
        return (c - 0.5 / beta).square() + (r + 0.5 / beta).square();
      case PairLoss::kApoZero:
        return 1 - (beta * c).sigmoid() + (beta * r).sigmoid();
      case PairLoss::kApoDown:
        return (beta * c).sigmoid() + 1 - m.sigmoid();
      case PairLoss::kDiscoPop: {
        const Tensor w = (m / options_.discopop_tau).sigmoid();
        return w * (-m).exp() - (1 - w) * log_s(m);
      }
      case PairLoss::kOddsRatio:
        return -beta * log_s(odds_of(pairs));
    }
    throw Error(ErrorKind::kInternal, "unknown pair loss");
  }
  /// Returns the log odds of the chosen row minus those of the rejected row.
  static Tensor odds_of(const Pairs& pairs) {
    const Tensor missing = 1 - pairs.exist;  // avoids infinite odds for missing rows
    return log_odds(pairs.chosen - missing) - log_odds(pairs.rejected - missing);
  }
  void add_odds(const Pairs& pairs, std::vector<Tensor>& sums) const {
    if (options_.loss == PairLoss::kOddsRatio) {
      const Tensor odds = odds_of(pairs);
      sums.push_back((at::log_sigmoid(odds) * pairs.exist).sum());
      sums.push_back((odds * pairs.exist).sum());
    }
  }

  PreferenceOptions options_;
};

class RewardOfPairs final : public Objective {
 public:
  explicit RewardOfPairs(double center) : center_(center) {}
  Needs needs() const override { return Needs::kRowLogits; }
  Counts counts(const nn::Targets& targets) const override {
    return of_kind(targets, nn::RowKind::kChosen).sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    const Tensor rewards = scores.log_likelihoods.select(1, 0).to(at::kDouble);
    const Tensor is_chosen = of_kind(targets, nn::RowKind::kChosen);
    const Tensor chosen = sums_of_groups(targets, rewards * is_chosen);
    const Tensor rejected =
        sums_of_groups(targets, rewards * of_kind(targets, nn::RowKind::kRejected));
    const Tensor exist = sums_of_groups(targets, is_chosen);
    const Tensor margins = chosen - rejected;
    const Tensor wanted = targets.baseline.defined()
                              ? sums_of_groups(targets, targets.baseline * is_chosen)
                              : at::zeros_like(margins);
    const Tensor losses =
        -at::log_sigmoid(margins - wanted) * exist + center_ * (chosen + rejected).square();
    return at::stack(
        {losses.sum(),
         exist.sum(),
         (margins.gt(0) * exist).sum(),
         margins.sum(),
         0.5 * (chosen + rejected).sum()});
  }
  std::vector<std::string> metrics() const override {
    return {"accuracy", "margin", "mean_reward"};
  }

 private:
  double center_;
};

class AnswerPreference final : public Objective {
 public:
  explicit AnswerPreference(const AnswerOptions& options) : options_(options) {}
  Needs needs() const override { return Needs::kRowScores; }
  Counts counts(const nn::Targets& targets) const override {
    const Tensor rows =
        of_kind(targets, nn::RowKind::kChosen) + of_kind(targets, nn::RowKind::kRejected);
    return rows.sum().item<double>();
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& /*step*/) const override {
    const Tensor& answers = scores.log_likelihoods;
    const Tensor chosen = of_kind(targets, nn::RowKind::kChosen);
    const Tensor rejected = of_kind(targets, nn::RowKind::kRejected);
    const Tensor gains = answers - needed(targets.reference, "reference scores");
    const Tensor baseline =
        options_.apo_zero ? at::zeros_like(gains) : needed(targets.baseline, "baseline");
    const Tensor rewards = options_.beta * gains;
    const Tensor above = options_.beta * (gains - baseline);
    const Tensor losses = options_.desirable_weight * chosen * (1 - above.sigmoid()) +
                          options_.undesirable_weight * rejected * (1 - (-above).sigmoid());
    return at::stack(
        {losses.sum(),
         (chosen + rejected).sum(),
         (rewards * chosen).sum(),
         (rewards * rejected).sum(),
         (answers * chosen).sum(),
         (answers * rejected).sum(),
         (baseline * (chosen + rejected)).sum(),
         chosen.sum()});
  }
  int64_t sums() const override { return 8; }
  std::vector<std::string> metrics() const override {
    return {
        "rewards/chosen",
        "rewards/rejected",
        "logps/chosen",
        "logps/rejected",
        "rewards/margins",
        "kl"};
  }
  Report report(std::span<const double> sums) const override {
    const double rows = sums[1], chosen = sums[7], rejected = rows - chosen;
    Report report{sums[0] / (rows > 0 ? rows : 1), {}};
    const auto add = [&](const char* name, double sum, double count) {
      if (count > 0) {
        report.metrics.emplace_back(name, sum / count);
      }
    };
    add("rewards/chosen", sums[2], chosen);
    add("rewards/rejected", sums[3], rejected);
    add("logps/chosen", sums[4], chosen);
    add("logps/rejected", sums[5], rejected);
    if (chosen > 0 && rejected > 0) {
      add("rewards/margins", sums[2] / chosen - sums[3] / rejected, 1);
    }
    if (!options_.apo_zero) {
      add("kl", sums[6], rows);
    }
    return report;
  }

 private:
  AnswerOptions options_;
};

}  // namespace

ObjectivePointer direct_preference(const PreferenceOptions& options) {
  return std::make_shared<PairPreference>(options);
}

ObjectivePointer reward_of_pairs(double center) {
  return std::make_shared<RewardOfPairs>(center);
}

ObjectivePointer answer_preference(const AnswerOptions& options) {
  return std::make_shared<AnswerPreference>(options);
}

}  // namespace lockstep::objective
