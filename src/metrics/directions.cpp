// Determines the direction of each metric by name.
#include "metrics/directions.h"

#include <algorithm>
#include <iterator>

namespace lockstep::metrics {

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"eval_", "test_"}) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      return name;
    }
  }
  return name;
}

bool greater_is_better(std::string_view name) {
  constexpr std::string_view kSmaller[] = {
      "brier",
      "ece",
      "mae",
      "mse",
      "perplexity",
      "rmse",
      "bits_per_byte",
      // Metrics on the forget set.
      "forget_Q_A_Prob",
      "forget_Q_A_ROUGE",
      "extraction_strength",
      "exact_memorization"};
  name = without_prefix(name);
  return !name.ends_with("loss") && !name.ends_with("error") &&
         std::find(std::begin(kSmaller), std::end(kSmaller), name) == std::end(kSmaller);
}

}  // namespace lockstep::metrics
