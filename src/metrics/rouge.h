// ROUGE word overlap of two strings (Lin, "ROUGE", 2004), computed like the package rouge-score
// with its stemmer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// Returns the stems of all words in a string. Words are runs of letters a to z and digits, in
/// lower case. Words longer than three characters are stemmed (metrics/porter.h).
std::vector<std::string> rouge_words(std::string_view text);

struct Rouge {
  double rouge1_recall = 0;  // share of the target's words in the prediction, with multiplicity
  double rougeL_recall = 0, rougeL_f1 = 0;  // from the longest common subsequence
};
/// Computes the scores. All are 0 if either string has no words.
Rouge rouge(std::string_view target, std::string_view prediction);

}  // namespace lockstep::metrics
