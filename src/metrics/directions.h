// Direction of a metric: larger is better, or smaller is better.
#pragma once

#include <string_view>

namespace lockstep::metrics {

/// Removes the prefix "eval_" or "test_": "eval_f1_macro" becomes "f1_macro".
std::string_view without_prefix(std::string_view name);

/// Returns true if larger values of the metric are better. False for losses, errors, perplexity and
/// similar metrics (mse, rmse, mae, brier, ece, hamming_loss, ...). Hugging Face's Trainer
/// recognizes only names that end in "loss".
bool greater_is_better(std::string_view name);

}  // namespace lockstep::metrics
