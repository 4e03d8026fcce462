// Head of a model: kind of output and labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// Problem type of a classifier, as in transformers.
enum class ProblemType {
  kSingleLabel,  // exactly one label per row
  kMultiLabel,   // any number of labels per row
  kRegression,   // one or more numbers per row
};
/// "single_label_classification", "multi_label_classification", "regression".
std::string_view name_of(ProblemType problem);
std::optional<ProblemType> parse_problem_type(std::string_view name);

struct HeadSpec {
  enum class Kind {
    kLanguage,    // vocabulary logits for each position
    kClassifier,  // one output vector per row, read at the last non-padding token
    kStates,  // no parameters; the output is the hidden states after a block, where the model is
              // truncated
  };
  Kind kind = Kind::kLanguage;
  std::vector<std::string> labels = {};             // classifiers only: output names, by index
  ProblemType problem = ProblemType::kSingleLabel;  // classifiers only
  int64_t layers = 0;                               // kStates: number of blocks

  bool classifies() const { return kind == Kind::kClassifier; }
  bool gives_states() const { return kind == Kind::kStates; }
  bool operator==(const HeadSpec&) const = default;
};

/// Returns the head of a model that is truncated after its first `layers` blocks.
HeadSpec states_head(int64_t layers);
/// Returns the head of a reward model: one number per row, as with num_labels=1 in transformers.
HeadSpec reward_head();

class ConfigReader;

/// Parses the architecture ("...ForSequenceClassification") and labels of a config.json as
/// transformers does: id2label, otherwise num_labels, otherwise two labels. A single output means
/// regression unless problem_type differs. Records problems in the reader.
HeadSpec parse_head(ConfigReader& reader);
/// Returns the architecture name for another head: "LlamaForCausalLM" ->
/// "LlamaForSequenceClassification".
std::string architecture_with(const HeadSpec& head, std::string_view of_language);

}  // namespace lockstep::model
