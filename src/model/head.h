// What a model's head gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// What a classifier's outputs are of a row, as transformers tells them apart.
enum class ProblemType {
  kSingleLabel,  // exactly one of the labels
  kMultiLabel,   // any number of them, each by itself
  kRegression,   // a number each
};
/// "single_label_classification", "multi_label_classification", "regression".
std::string_view name_of(ProblemType problem);
std::optional<ProblemType> parse_problem_type(std::string_view name);

struct HeadSpec {
  enum class Kind {
    kLanguage,    // a token of the vocabulary for each position
    kClassifier,  // a row's outputs, read at its last token that is no padding
    kStates,      // no parameters: the hidden states behind one of the blocks, where the model ends
  };
  Kind kind = Kind::kLanguage;
  std::vector<std::string> labels = {};  // of a classifier: the outputs' names, by their numbers
  ProblemType problem = ProblemType::kSingleLabel;  // of a classifier
  int64_t layers = 0;                               // of kStates: the blocks that there are

  bool classifies() const { return kind == Kind::kClassifier; }
  bool gives_states() const { return kind == Kind::kStates; }
  bool operator==(const HeadSpec&) const = default;
};

/// Of a model that ends behind its first `layers` blocks.
HeadSpec states_head(int64_t layers);
/// Of a reward model: a number a row, as transformers' num_labels=1.
HeadSpec reward_head();

class ConfigReader;

/// From a config.json's architecture ("...ForSequenceClassification") and its names of labels, as
/// transformers has them: id2label, else num_labels, else two; one output alone is a number unless
/// problem_type says something else. Problems go to the reader.
HeadSpec parse_head(ConfigReader& reader);
/// The architecture with another head: of "LlamaForCausalLM" "LlamaForSequenceClassification".
std::string architecture_with(const HeadSpec& head, std::string_view of_language);

}  // namespace lockstep::model
