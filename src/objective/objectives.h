// Functions that create the objectives. A new objective is a class in one of the .cpp files and a
// function in this header.
#pragma once

#include "objective/objective.h"

namespace lockstep::objective {

/// Mean of -log p over the targets, for language modeling and for classification with one target
/// per row. Training distributes the fraction label_smoothing of each target over the vocabulary;
/// evaluation does not, so that perplexity is not affected. Metrics: perplexity, token_accuracy.
ObjectivePointer cross_entropy(double label_smoothing = 0);

struct ClassOptions {
  std::vector<double> weights = {};  // weight of each class; empty: 1
  double focal_gamma = 0;      // reduces the weight of confident predictions (focal loss: Lin et
                               // al., 2017)
  double label_smoothing = 0;  // e: fraction of the target that is distributed over the K classes
};
/// Classification: the sum over rows of (1 - e) w_y (1 - p_y)^focal_gamma * -log p_y + e / K *
/// sum_k w_k * -log p_k, divided by the sum over rows of the class weights w_y. Metric: accuracy
/// (unweighted).
ObjectivePointer class_cross_entropy(ClassOptions options);
/// Multi-label classification: mean over rows and labels of w_k t * -log p + (1 - t) * -log(1 - p),
/// where p is the sigmoid of the logit, t the target, and w_k the weight of positive rows
/// (PyTorch's pos_weight). With focal_gamma, each term is multiplied by (1 - p_t)^focal_gamma,
/// where p_t is the probability of the target, p or 1 - p. Reads targets.outputs. Throws Error
/// (kInternal) if label smoothing is set, which is not supported.
ObjectivePointer label_cross_entropy(ClassOptions options = {});
/// Regression: mean over rows and outputs of (output - target)^2. Reads targets.outputs.
ObjectivePointer squared_error();

/// Pairwise losses, with TRL's names. c and r are the scores of the chosen and the rejected row,
/// and m = beta * (c - r). docs/preference.md lists the papers.
enum class PairLoss {
  kSigmoid,   // -(1 - e) log s(m) - e log s(-m), where s is the logistic function and e is
              // label_smoothing (DPO: Rafailov et al., 2023, equation 7; CPO: Xu et al., 2024,
              // equation 3)
  kHinge,     // max(0, 1 - m) (SLiC: Zhao et al., 2023)
  kIpo,       // (c - r - 1 / (2 beta))^2 (Azar et al., 2023, equation 17)
  kExoPair,   // KL of (s(m), s(-m)) from (1 - e, e) (EXO: Ji et al., 2024, equation 16)
  kNcaPair,   // -log s(beta c) - (log s(-beta c) + log s(-beta r)) / 2 (NCA: Chen et al., 2024)
  kRobust,    // the two terms of kSigmoid, weighted so that the loss is unbiased if a fraction e of
              // the pairs is swapped (rDPO: Chowdhury et al., 2024, equation 12)
  kBcoPair,   // -log s(beta c) - log s(-beta r) (BCO: Jung et al., 2024, without a shift)
  kSppoHard,  // (c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2 (SPPO: Wu et al., 2024, equation 4.7)
  kApoZero,   // 1 - s(beta c) + s(beta r) (APO: D'Oosterlinck et al., 2024, equation 7)
  kApoDown,   // s(beta c) + 1 - s(m) (APO, equation 8)
  kDiscoPop,  // -(1 - w) log s(m) + w e^-m, w = s(m / tau) (Lu et al., 2024, equation 5)
  kOddsRatio,  // -beta log s(log odds of e^c - log odds of e^r) (ORPO: Hong et al., 2024, equation
               // 7)
};

struct PreferenceOptions {
  PairLoss loss = PairLoss::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;  // assumed fraction of pairs whose answers are swapped
  double margin = 0;           // kSigmoid: target margin of m (SimPO's gamma)
  double discopop_tau = 0.05;
  bool reference = true;   // true: score rows by the log-ratio to the reference; false: by log p
  bool per_token = false;  // divide scores by the number of tokens
  double likelihood = 0;   // coefficient of an additional loss term: the mean of -log p over the
                           // tokens of the chosen rows, including prompts if the targets mark them
};
/// Mean of a PairLoss over pairs. Reads kinds, groups (with one chosen and one rejected row each)
/// and, if `reference` is set, reference. Metrics, as in TRL: rewards/accuracies, rewards/margins,
/// rewards/chosen, rewards/rejected (beta times the log-ratio or, without a reference, beta times
/// the score), logps/chosen, logps/rejected; with `likelihood` also nll_loss; for kOddsRatio also
/// log_odds_ratio, log_odds_chosen.
ObjectivePointer direct_preference(const PreferenceOptions& options = {});

/// Loss of a reward model, whose head has a single output, the reward: mean over pairs of -log s(c
/// - r - b) + center (c + r)^2, where c and r are the rewards of the chosen and the rejected row,
/// and b is the margin of the pair, given by the baseline of the chosen row (0 if undefined)
/// (Bradley-Terry: Ouyang et al., 2022, equation 1; centered: Eisenstein et al., 2023, equation 2).
/// Reads kinds, groups and, if defined, baseline. Metrics, as in TRL: accuracy, margin,
/// mean_reward.
ObjectivePointer reward_of_pairs(double center = 0);

struct AnswerOptions {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  bool apo_zero = false;  // use APO's unpaired loss (TRL's apo_zero_unpaired), which has no
                          // baseline
};
/// Loss for unpaired preference data: weighted mean over rows of 1 - s(beta (g - z)) for chosen
/// rows and 1 - s(beta (z - g)) for rejected rows, where g is the log-ratio to the reference and z
/// its baseline, an estimate of the KL divergence of the model from the reference (KTO: Ethayarajh
/// et al., 2024, equation 7). The weights are desirable_weight and undesirable_weight. Reads kinds,
/// reference and baseline. Metrics: rewards/chosen, rewards/rejected, logps/chosen, logps/rejected,
/// rewards/margins, kl. Metrics of kinds without rows are omitted.
ObjectivePointer answer_preference(const AnswerOptions& options = {});

/// Normalization of an objective: means over the step, which do not depend on its micro-batches, or
/// the mean of micro-batch means as in Hugging Face's Trainer.
enum class Means { kOfStep, kOfMicroBatches };

/// Options of the unlearning objectives. Their loss is gamma * F + alpha * R. F covers the forget
/// set. R is the mean of -log p over the tokens of the retain set or, if the targets are
/// distributions of a reference model, of the divergence from it. All of them read kinds. Names and
/// formulas follow open-unlearning (Dorna et al., 2025). Metrics: forget_loss (F), retain_loss (R).
struct UnlearningOptions {
  double gamma = 1, alpha = 1;
  double retain_bound = 0;  // level_distribution: upper bound of R
  double beta = 1;          // with larger values, the gradient of F decreases earlier
  double delta = 0;         // used by simple_negative_preference
  double saturation = 0;    // weighted_ascent: larger values give more weight to tokens with low
                            // probability
  Means means = Means::kOfStep;
};
/// F is the mean of log p over tokens (GradDiff; Maini et al., "TOFU", 2024).
ObjectivePointer gradient_difference(const UnlearningOptions& options = {});
/// Variant without a retain set (GradAscent).
ObjectivePointer gradient_ascent(Means means = Means::kOfStep);
/// F is the mean over positions of the cross-entropy against a reference distribution in which the
/// logit of the token is reduced (UNDIAL; Dong et al., 2024, equation 3); see
/// nn::Distributions::lowered.
ObjectivePointer lowered_distribution(const UnlearningOptions& options = {});
/// F is the mean, over the positions in nn::Distributions::level, of the squared difference between
/// the largest and the mean logit. Retention is a constraint, R <= retain_bound, with alpha as the
/// multiplier (nn::Targets::weights): the loss contains alpha * (R - retain_bound) (PDU; Entesari
/// et al., "Constrained Entropic Unlearning", 2025). Additional metric: retain_preference, the
/// value of alpha.
ObjectivePointer level_distribution(const UnlearningOptions& options = {});
/// F and R are means over rows of the mean squared distance between the hidden states of an answer,
/// at one layer, and their target states (RMU; Li et al., "The WMDP benchmark", 2024, equations 1
/// and 2). Requires a head that returns states. With kOfMicroBatches: the mean of the rows' sums
/// times the mean of their inverse lengths, as in open-unlearning.
ObjectivePointer steered_states(const UnlearningOptions& options = {});
/// F is the mean over tokens of p^beta (1 - p)^saturation log p, with both factors held constant
/// (WGA; Wang et al., 2025; with saturation: SatImp; Yang et al., 2025).
ObjectivePointer weighted_ascent(const UnlearningOptions& options = {});
/// F is the mean over the tokens of the cross-entropy against the model's own distribution over all
/// other tokens, held constant (CEU; Yang et al., 2025). The forget tokens must be marked by
/// nn::with_other_tokens.
ObjectivePointer others_instead(const UnlearningOptions& options = {});
/// F is the mean over rows of -2 / beta log sigmoid(-beta (l - reference)), where l is the
/// log-likelihood of the row (NPO; Zhang et al., 2024). Also reads reference.
ObjectivePointer negative_preference(const UnlearningOptions& options = {});
/// F is the mean over rows of -2 / beta log sigmoid(beta (a - g)), where g is the log-ratio of the
/// row to the reference and a that of the chosen row of its group, which is an alternative answer
/// to the same question (IdkDPO, AltPO). Also reads reference and groups.
ObjectivePointer alternate_preference(const UnlearningOptions& options = {});
/// F is the mean over rows of -2 / beta log sigmoid(-beta (l / tokens + delta)) (SimNPO; Fan et
/// al., 2024).
ObjectivePointer simple_negative_preference(const UnlearningOptions& options = {});

}  // namespace lockstep::objective
