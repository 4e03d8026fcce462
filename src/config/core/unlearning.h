// Keys and defaults of each unlearning.method.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::config {

struct UnlearningMethod {
  std::string_view name;
  double gamma = 1, alpha = 1, beta = 1;
  bool forgets = true;                          // has a term of rows to be forgotten
  bool keeps = true;                            // has a term of rows to be kept
  bool reads_scores = false;                    // compares rows with the model as it was
  bool reads_distributions = false;             // and positions
  bool steers = false;                          // compares hidden states at a layer, and ends there
  bool levels = false;                          // makes logits level; to keep is a constraint
  std::span<const std::string_view> keys = {};  // of the section, that not all methods take
};

/// Every method, in the order of the documents.
std::span<const UnlearningMethod> unlearning_methods();
/// By its name, which is one of choices::kUnlearningMethods.
const UnlearningMethod& unlearning_method(std::string_view name);

}  // namespace lockstep::config
