// Encoded rows of an unlearning benchmark: TOFU's questions and answers, and MUSE's texts and
// few-shot questions.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "data/questions.h"
#include "text/tokenizer.h"

namespace lockstep::train {

/// Sets of unlearning.data_dir by name. Each file is read once, on first use.
class UnlearningQuestions {
 public:
  struct Dataset {
    data::Questions questions;
    std::vector<data::EncodedAnswer> encoded;  // answers of all rows, in order
    data::QuestionTemplate form;               // format of the questions
  };

  /// Does not read files. Throws Error (kConfig) if data_dir is not set, or if a chat template is
  /// used with MUSE.
  UnlearningQuestions(
      const config::UnlearningSection& section,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t length);

  /// Returns a set. `answer_key` is the field with the answer. Throws Error (kData) if the file or
  /// a field of a row does not exist.
  const Dataset& operator()(const std::string& name, const std::string& answer_key);

  bool is_muse() const { return section_.benchmark == "muse"; }
  /// Returns the name of the forget set.
  std::string forgotten() const {
    return is_muse() ? "verbmem/forget" : section_.forget_split + "_perturbed";
  }
  /// Returns the names of the two sets that membership attacks distinguish: the forget set (or its
  /// source) and a holdout set that was not used in training.
  std::array<std::string, 2> attacked() const {
    return is_muse() ? std::array<std::string, 2>{"privleak/forget", "privleak/holdout"}
                     : std::array<std::string, 2>{forgotten(), section_.holdout_split};
  }
  /// Returns the name of MUSE's forget or retain questions for a metric.
  static std::string knowledge_of(const std::string& metric) {
    return "knowmem/" + metric.substr(0, metric.find('_')) + "_qa";
  }

  const data::Encoder& encoder() const { return encoder_; }
  int64_t length() const { return length_; }

 private:
  /// Returns the files of a set: one, or one per part.
  std::vector<std::string> files_of(const std::string& name) const;
  Dataset questions_of(const std::string& name, const std::string& answer_key) const;
  Dataset texts_of(const std::string& name) const;

  const config::UnlearningSection& section_;
  data::Encoder encoder_;
  data::QuestionTemplate form_;
  int64_t length_;
  std::map<std::string, Dataset> datasets_;  // by set name and answer field
};

}  // namespace lockstep::train
