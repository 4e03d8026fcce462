// How much two texts have in common, word by word (Lin, "ROUGE", 2004), as the package rouge-score
// computes it with its stemmer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// The stems of a text's words: runs of letters a to z and digits, in lower case; those of more
/// than three characters are stemmed (metrics/porter.h).
std::vector<std::string> rouge_words(std::string_view text);

struct Rouge {
  double rouge1_recall = 0;  // words of the target that the prediction has, each as often
  double rougeL_recall = 0, rougeL_f1 = 0;  // of their longest common subsequence
};
/// All are 0 where either has no words.
Rouge rouge(std::string_view target, std::string_view prediction);

}  // namespace lockstep::metrics
