// The objectives. To add one is a class in one of the .cpp files, and a function here.
#pragma once

#include "objective/objective.h"

namespace lockstep::objective {

/// The mean of -log p over the targets: of language modelling, and of classification, where each
/// row has one target. Training spreads the share label_smoothing of each target over the
/// vocabulary; evaluations do not, so that perplexity is what it says. Metrics: perplexity,
/// token_accuracy.
ObjectivePointer cross_entropy(double label_smoothing = 0);

struct ClassOptions {
  std::vector<double> weights = {};  // of each class; empty: all are one
  double focal_gamma = 0;      // what is told surely weighs less (focal loss: Lin et al., 2017)
  double label_smoothing = 0;  // e: the share of the target that is spread over the K classes
};
/// Of classification: the sum over the rows of
///   (1 - e) w_y (1 - p_y)^focal_gamma * -log p_y + e / K * sum_k w_k * -log p_k,
/// divided by the sum of their classes' weights w_y. Metric: weighted_accuracy.
ObjectivePointer class_cross_entropy(ClassOptions options);
/// Of rows with several labels: the mean over rows and labels of w_k t * -log p +
/// (1 - t) * -log(1 - p), p being the logit's sigmoid, t the target, and w_k what a row that has
/// the label weighs (PyTorch's pos_weight); with focal_gamma each term by (1 - p_t)^focal_gamma,
/// p_t being p or 1 - p. Reads outputs. There is no smoothing: Error (kInternal).
ObjectivePointer label_cross_entropy(ClassOptions options = {});
/// Of numbers: the mean over rows and outputs of (output - target)^2. Reads outputs.
ObjectivePointer squared_error();

struct PreferenceOptions {
  double beta = 0.1;
  double label_smoothing = 0;  // the share of pairs whose answers are taken for swapped
};
/// The mean over pairs of -log sigmoid(margin), a margin being beta times what the chosen row
/// gained on the reference more than the rejected one (Rafailov et al., "Direct Preference
/// Optimization", 2023, equation 7). Reads kinds, groups (one chosen and one rejected row each) and
/// reference. Metrics: rewards/accuracies, rewards/margins, rewards/chosen, rewards/rejected.
ObjectivePointer direct_preference(const PreferenceOptions& options = {});

/// Of all of them the loss is gamma * F + alpha * R: F is of the rows to be forgotten, and R the
/// mean of -log p over the tokens of those to be kept. They read kinds. Names and formulas are
/// those of open-unlearning (Dorna et al., 2025).
struct UnlearningOptions {
  double gamma = 1, alpha = 1;
  double beta = 1;   // how soon F lets go of what is forgotten
  double delta = 0;  // of simple_negative_preference
};
/// F is the mean of log p over the tokens (GradDiff; Maini et al., "TOFU", 2024).
ObjectivePointer gradient_difference(const UnlearningOptions& options = {});
/// The same without rows that are kept (GradAscent).
ObjectivePointer gradient_ascent();
/// F is the mean over the tokens of p^beta log p, p^beta held constant (WGA; Wang et al., 2025).
ObjectivePointer weighted_ascent(const UnlearningOptions& options = {});
/// F is the mean over the rows of -2 / beta log sigmoid(-beta (l - reference)), l the row's
/// log-likelihood (NPO; Zhang et al., 2024). Reads reference too.
ObjectivePointer negative_preference(const UnlearningOptions& options = {});
/// F is the mean over the rows of -2 / beta log sigmoid(-beta (l / tokens + delta)) (SimNPO; Fan et
/// al., 2024).
ObjectivePointer simple_negative_preference(const UnlearningOptions& options = {});

}  // namespace lockstep::objective
