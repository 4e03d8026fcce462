// Which way a metric is better.
#pragma once

#include <string_view>

namespace lockstep::metrics {

/// "eval_f1_macro" is "f1_macro", "test_loss" is "loss".
std::string_view without_prefix(std::string_view name);

/// Whether the larger value is the better one: not of losses, errors, perplexity and the like (mse,
/// rmse, mae, brier, ece, hamming_loss, ...), of which Hugging Face's Trainer knows only what ends
/// in "loss".
bool greater_is_better(std::string_view name);

}  // namespace lockstep::metrics
