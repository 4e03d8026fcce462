// What a model's head gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

struct HeadSpec {
  enum class Kind {
    kLanguage,    // a token of the vocabulary for each position
    kClassifier,  // one of some classes for a row, read at its last token that is no padding
  };
  Kind kind = Kind::kLanguage;
  std::vector<std::string> labels = {};  // of a classifier: the classes' names, by their numbers

  bool classifies() const { return kind == Kind::kClassifier; }
  bool operator==(const HeadSpec&) const = default;
};

class ConfigReader;

/// From a config.json's architecture ("...ForSequenceClassification") and its names of labels, as
/// transformers has them: id2label, else num_labels, else two. Problems go to the reader.
HeadSpec parse_head(ConfigReader& reader);
/// The architecture with another head: of "LlamaForCausalLM" "LlamaForSequenceClassification".
std::string architecture_with(const HeadSpec& head, std::string_view of_language);

}  // namespace lockstep::model
