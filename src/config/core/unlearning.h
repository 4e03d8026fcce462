// Defaults and keys of the unlearning methods.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::config {

struct UnlearningMethod {
  std::string_view name;
  double gamma = 1, alpha = 1, beta = 1;
  bool forgets = true;               // has a forget loss
  bool keeps = true;                 // has a retain loss
  bool reads_scores = false;         // compares log-likelihoods with the initial model
  bool reads_distributions = false;  // compares token distributions with the initial model
  bool excludes_tokens = false;      // compares with the model's own distribution over other tokens
  bool steers = false;  // compares hidden states at a layer; later layers are not computed
  bool levels = false;  // flattens logits, with the retain loss as a constraint
  std::span<const std::string_view> keys = {};  // method-specific keys of the section
};

/// Returns all methods in the order of the documentation.
std::span<const UnlearningMethod> unlearning_methods();
/// Returns the method with this name, one of choices::kUnlearningMethods. Throws Error (internal)
/// for other names.
const UnlearningMethod& unlearning_method(std::string_view name);

}  // namespace lockstep::config
