// Output of a model's head.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// Task of a classifier, as in transformers.
enum class ProblemType {
  kSingleLabel,  // exactly one of the labels
  kMultiLabel,   // any number of independent classes
  kRegression,   // regression of one or more numbers
};
/// "single_label_classification", "multi_label_classification", "regression".
std::string_view name_of(ProblemType problem);
std::optional<ProblemType> parse_problem_type(std::string_view name);

struct HeadSpec {
  enum class Kind {
    kLanguage,    // a vocabulary token for each position
    kClassifier,  // outputs per row, read at its last non-padding token
    kStates,      // no parameters: the hidden states after a block, where the model is truncated
  };
  Kind kind = Kind::kLanguage;
  std::vector<std::string> labels = {};             // classifiers: names of the outputs, by index
  ProblemType problem = ProblemType::kSingleLabel;  // classifiers only
  int64_t layers = 0;                               // kStates: number of blocks

  bool classifies() const { return kind == Kind::kClassifier; }
  bool gives_states() const { return kind == Kind::kStates; }
  bool operator==(const HeadSpec&) const = default;
};

/// Head of a model truncated after its first `layers` blocks.
HeadSpec states_head(int64_t layers);
/// Head of a reward model: one number per row, as transformers' num_labels=1.
HeadSpec reward_head();

class ConfigReader;

/// Parses a config.json's architecture ("...ForSequenceClassification") and labels as transformers
/// does: id2label, otherwise num_labels, otherwise two labels. A single output is a regression
/// unless problem_type says otherwise. Records problems in the reader.
HeadSpec parse_head(ConfigReader& reader);
/// Returns the architecture name with another head: "LlamaForCausalLM" ->
/// "LlamaForSequenceClassification".
std::string architecture_with(const HeadSpec& head, std::string_view of_language);

}  // namespace lockstep::model
