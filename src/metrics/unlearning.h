// What is left of what a model was to forget, by the definitions of open-unlearning (Dorna et al.,
// 2025) and TOFU (Maini et al., 2024). Losses are means of -log p over an answer's tokens.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// exp(-loss), of a row's token the geometric mean of its likelihoods.
double probability(double loss);
/// The share that the correct answer has among the options.
double probability_among(double correct_loss, std::span<const double> wrong_losses);
/// Likelihood of the wrong answers, their geometric mean, over that of the correct one.
double truth_ratio(double correct_loss, std::span<const double> wrong_losses);
/// correct / (correct + wrong) of the same two: TOFU's paper has this one.
double truth_share(double correct_loss, std::span<const double> wrong_losses);
/// The means of min(r, 1 / r), and of max(0, 1 - r).
double closer_to_one_is_better(std::span<const double> truth_ratios);
double truth_is_better(std::span<const double> truth_ratios);

struct KolmogorovSmirnov {
  double statistic = 0, p_value = 1;
};
/// Of two samples, two-sided and exact at any size (Hodges, 1958, with ties as in SciPy's
/// ks_2samp).
KolmogorovSmirnov kolmogorov_smirnov(std::vector<double> a, std::vector<double> b);

/// 0 where one of them is 0, or there is none.
double harmonic_mean(std::span<const double> values);

/// Of the tokens of an answer without its last: the share that is the likeliest. NaN: there are
/// none.
double exact_memorization(std::span<const bool> likeliest);
/// 1 - k / n, k the first of n tokens from which on all are the likeliest. `floor_is_one`: at least
/// 1 / n, whatever the last token is (open-unlearning); 0 of no tokens.
enum class LeastExtraction { kZero, kOneToken };
double extraction_strength(std::span<const bool> likeliest, LeastExtraction least);

/// Minus the mean of the share k of least likely tokens (at least one of them); 0 of none.
double min_k(std::vector<double> log_likelihoods, double k);

/// A text's length once zlib has compressed it, at its level 6.
size_t compressed_length(std::string_view text);

/// How far an attack's AUC is from that on a model that never saw the rows, in percent of 1 - it.
double privacy_leakage(double auc, double reference_auc);

}  // namespace lockstep::metrics
