// Unlearning metrics defined by open-unlearning (Dorna et al., 2025) and TOFU (Maini et al., 2024).
// A loss is the mean of -log p over the tokens of an answer.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// Returns exp(-loss), the geometric mean of the token probabilities.
double probability(double loss);
/// Returns the probability of the correct answer divided by the sum over all options.
double probability_among(double correct_loss, std::span<const double> wrong_losses);
/// Returns the geometric mean of the wrong answers' probabilities divided by the correct answer's
/// probability.
double truth_ratio(double correct_loss, std::span<const double> wrong_losses);
/// Returns correct / (correct + wrong) for the same two probabilities, as in the TOFU paper.
double truth_share(double correct_loss, std::span<const double> wrong_losses);
/// Return the mean of min(r, 1 / r), and the mean of max(0, 1 - r).
double closer_to_one_is_better(std::span<const double> truth_ratios);
double truth_is_better(std::span<const double> truth_ratios);

struct KolmogorovSmirnov {
  double statistic = 0, p_value = 1;
};
/// Two-sided two-sample Kolmogorov-Smirnov test, exact for any sample size (Hodges, 1958; ties as
/// in SciPy's ks_2samp).
KolmogorovSmirnov kolmogorov_smirnov(std::vector<double> a, std::vector<double> b);

/// Returns the harmonic mean. 0 if any value is 0 or the list is empty.
double harmonic_mean(std::span<const double> values);

/// Returns the share of an answer's tokens, excluding the last token, for which the model's most
/// likely token is correct. NaN if there are none.
double exact_memorization(std::span<const bool> likeliest);
/// Lower bound of the extraction strength: 0, or 1 / n even if the last token is wrong
/// (open-unlearning).
enum class LeastExtraction { kZero, kOneToken };
/// Returns 1 - k / n if the model predicts all tokens from the k-th of n on correctly. 0 if there
/// are no tokens.
double extraction_strength(std::span<const bool> likeliest, LeastExtraction least);

/// Returns the negated mean of the lowest log-likelihoods: a share k of all tokens, at least one
/// token. 0 if there are no tokens.
double min_k(std::vector<double> log_likelihoods, double k);

/// Returns the length in bytes after compression with zlib at level 6.
size_t compressed_length(std::string_view text);

/// Returns the difference in percent between an attack's AUC and its AUC on a model that never saw
/// the rows: ((1 - auc) - (1 - reference)) / (1 - reference).
double privacy_leakage(double auc, double reference_auc);

}  // namespace lockstep::metrics
