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
/// divided by the sum of their classes' weights w_y. Metric: accuracy, of rows without weights.
ObjectivePointer class_cross_entropy(ClassOptions options);
/// Of rows with several labels: the mean over rows and labels of w_k t * -log p +
/// (1 - t) * -log(1 - p), p being the logit's sigmoid, t the target, and w_k what a row that has
/// the label weighs (PyTorch's pos_weight); with focal_gamma each term by (1 - p_t)^focal_gamma,
/// p_t being p or 1 - p. Reads outputs. There is no smoothing: Error (kInternal).
ObjectivePointer label_cross_entropy(ClassOptions options = {});
/// Of numbers: the mean over rows and outputs of (output - target)^2. Reads outputs.
ObjectivePointer squared_error();

/// A loss of a pair, by TRL's names: c and r are what the chosen and the rejected row score, and
/// m = beta * (c - r). docs/preference.md has the papers.
enum class PairLoss {
  kSigmoid,  // -(1 - e) log s(m) - e log s(-m), s the logistic function and e label_smoothing (DPO:
             // Rafailov et al., 2023, equation 7; CPO: Xu et al., 2024, equation 3)
  kHinge,    // max(0, 1 - m) (SLiC: Zhao et al., 2023)
  kIpo,      // (c - r - 1 / (2 beta))^2 (Azar et al., 2023, equation 17)
  kExoPair,  // KL of (s(m), s(-m)) from (1 - e, e) (EXO: Ji et al., 2024, equation 16)
  kNcaPair,  // -log s(beta c) - (log s(-beta c) + log s(-beta r)) / 2 (NCA: Chen et al., 2024)
  kRobust,   // kSigmoid's two terms, unbiased where a share e of pairs is swapped (rDPO: Chowdhury
             // et al., 2024, equation 12)
  kBcoPair,  // -log s(beta c) - log s(-beta r) (BCO: Jung et al., 2024, without a shift)
  kSppoHard,   // (c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2 (SPPO: Wu et al., 2024, equation 4.7)
  kApoZero,    // 1 - s(beta c) + s(beta r) (APO: D'Oosterlinck et al., 2024, equation 7)
  kApoDown,    // s(beta c) + 1 - s(m) (APO, equation 8)
  kDiscoPop,   // -(1 - w) log s(m) + w e^-m, w = s(m / tau) (Lu et al., 2024, equation 5)
  kOddsRatio,  // -beta log s(log odds of e^c - log odds of e^r) (ORPO: Hong et al., 2024, equation
               // 7)
};

struct PreferenceOptions {
  PairLoss loss = PairLoss::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;  // the share of pairs whose answers are taken for swapped
  double margin = 0;           // kSigmoid: what m has to be above (SimPO's gamma)
  double discopop_tau = 0.05;
  bool reference = true;   // a row scores what it gained on the reference; else its own log p
  bool per_token = false;  // and that divided by its tokens
  double likelihood = 0;   // what is added: so often the mean -log p of the chosen rows' tokens,
                           // those of prompts too where targets tell them apart
};
/// The mean over pairs of a PairLoss. Reads kinds, groups (one chosen and one rejected row each)
/// and, with `reference`, reference. Metrics, as TRL's trainers have them: rewards/accuracies,
/// rewards/margins, rewards/chosen, rewards/rejected (beta times what a row gained; without a
/// reference times its score), logps/chosen, logps/rejected; with `likelihood` nll_loss; of
/// kOddsRatio log_odds_ratio, log_odds_chosen.
ObjectivePointer direct_preference(const PreferenceOptions& options = {});

/// Of a head of one class, whose logit is a row's reward: the mean over pairs of -log s(c - r) +
/// center (c + r)^2, c and r the rewards of the chosen and the rejected row (Bradley-Terry: Ouyang
/// et al., 2022, equation 1; centred: Eisenstein et al., 2023, equation 2). Reads kinds and groups.
/// Metrics, as TRL's trainer has them: accuracy, margin, mean_reward.
ObjectivePointer reward_of_pairs(double center = 0);

struct AnswerOptions {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  bool apo_zero = false;  // APO's loss of single answers, without a baseline (TRL's
                          // apo_zero_unpaired)
};
/// Of answers that are judged one by one: the mean over rows of the weight of its kind times
/// 1 - s(beta (g - z)) of a chosen row and 1 - s(beta (z - g)) of a rejected one; g is what the row
/// gained on the reference, and z its baseline, an estimate of the model's KL from the reference
/// (KTO: Ethayarajh et al., 2024, equation 7). Reads kinds, reference and baseline. Metrics:
/// rewards/chosen, rewards/rejected, logps/chosen, logps/rejected, rewards/margins, kl; those of
/// kinds that did not occur are left out.
ObjectivePointer answer_preference(const AnswerOptions& options = {});

/// Whose means an objective takes: those of a step, whatever its micro-batches are, or the mean of
/// those of its micro-batches, as Hugging Face's Trainer does.
enum class Means { kOfStep, kOfMicroBatches };

/// Of all of them the loss is gamma * F + alpha * R: F is of the rows to be forgotten, and R the
/// mean of -log p over the tokens of those to be kept, or of the divergence from a reference where
/// their targets are its distributions. They read kinds. Names and formulas are those of
/// open-unlearning (Dorna et al., 2025). Metrics: forget_loss (F), retain_loss (R).
struct UnlearningOptions {
  double gamma = 1, alpha = 1;
  double retain_bound = 0;  // of level_distribution: what R is to stay below
  double beta = 1;          // how soon F lets go of what is forgotten
  double delta = 0;         // of simple_negative_preference
  double saturation = 0;    // of weighted_ascent: tokens that are far from learned weigh more, too
  Means means = Means::kOfStep;
};
/// F is the mean of log p over the tokens (GradDiff; Maini et al., "TOFU", 2024).
ObjectivePointer gradient_difference(const UnlearningOptions& options = {});
/// The same without rows that are kept (GradAscent).
ObjectivePointer gradient_ascent(Means means = Means::kOfStep);
/// F is the mean over positions of the cross-entropy against a reference's distribution in which
/// the logit of the token is lowered (UNDIAL; Dong et al., 2024, equation 3): what the rows'
/// targets say (nn::Distributions::lowered).
ObjectivePointer lowered_distribution(const UnlearningOptions& options = {});
/// F is the mean over positions of the square of how far the largest logit is above the mean of
/// all: of those whose logits are to be level (nn::Distributions::level). To keep rows is a
/// constraint, R
/// <= retain_bound: alpha is theirs (nn::Targets::weights), and the loss has alpha * (R -
/// retain_bound) (PDU; Entesari et al., "Constrained Entropic Unlearning", 2025). Metrics: also
/// retain_preference, that alpha.
ObjectivePointer level_distribution(const UnlearningOptions& options = {});
/// F and R are means over rows of the mean squared distance of an answer's hidden states, at one
/// layer, to what they are to be (RMU; Li et al., "The WMDP benchmark", 2024, equations 1 and 2):
/// of a head that gives states. With kOfMicroBatches the mean of the rows' sums times the mean of
/// their inverse lengths, as in open-unlearning.
ObjectivePointer steered_states(const UnlearningOptions& options = {});
/// F is the mean over the tokens of p^beta (1 - p)^saturation log p, both factors held constant
/// (WGA; Wang et al., 2025; with saturation SatImp; Yang et al., 2025).
ObjectivePointer weighted_ascent(const UnlearningOptions& options = {});
/// F is the mean over the tokens of -log(1 - p). Its gradient is that of the cross-entropy against
/// what the model itself says of all other tokens, held constant (CEU; Yang et al., 2025), and its
/// value is that less the constant's entropy.
ObjectivePointer others_instead(const UnlearningOptions& options = {});
/// F is the mean over the rows of -2 / beta log sigmoid(-beta (l - reference)), l the row's
/// log-likelihood (NPO; Zhang et al., 2024). Reads reference too.
ObjectivePointer negative_preference(const UnlearningOptions& options = {});
/// F is the mean over the rows of -2 / beta log sigmoid(beta (a - g)), g what the row gained on the
/// reference and a what the chosen row of its group did: another answer to its question (IdkDPO,
/// AltPO). Reads reference and groups too.
ObjectivePointer alternate_preference(const UnlearningOptions& options = {});
/// F is the mean over the rows of -2 / beta log sigmoid(-beta (l / tokens + delta)) (SimNPO; Fan et
/// al., 2024).
ObjectivePointer simple_negative_preference(const UnlearningOptions& options = {});

}  // namespace lockstep::objective
