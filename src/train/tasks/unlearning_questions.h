// The rows that a suite of unlearning asks: TOFU's questions with their answers, MUSE's texts and
// questions after examples, encoded.
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

/// The files of unlearning.data_dir by name, each read once, when it is first asked for.
class UnlearningQuestions {
 public:
  struct Dataset {
    data::Questions questions;
    std::vector<data::EncodedAnswer> encoded;  // each row's answers, one after the other
    data::QuestionTemplate form;               // how they are asked
  };

  /// Error (kConfig): no data_dir; MUSE as chats. Reads no file.
  UnlearningQuestions(
      const config::UnlearningSection& section,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      int64_t length);

  /// `answer_key` is the field of the answer. Error (kData): no such file, or a row without a
  /// field.
  const Dataset& operator()(const std::string& name, const std::string& answer_key);

  bool is_muse() const { return section_.benchmark == "muse"; }
  /// The set whose answers are to be forgotten.
  std::string forgotten() const {
    return is_muse() ? "verbmem/forget" : section_.forget_split + "_perturbed";
  }
  /// Those that attacks tell apart: it, or what it is of, and what no model has seen.
  std::array<std::string, 2> attacked() const {
    return is_muse() ? std::array<std::string, 2>{"privleak/forget", "privleak/holdout"}
                     : std::array<std::string, 2>{forgotten(), section_.holdout_split};
  }
  /// MUSE's questions about what is forgotten, or kept, by the metric's name.
  static std::string knowledge_of(const std::string& metric) {
    return "knowmem/" + metric.substr(0, metric.find('_')) + "_qa";
  }

  const data::Encoder& encoder() const { return encoder_; }
  int64_t length() const { return length_; }

 private:
  /// Of a set's file, or of its parts.
  std::vector<std::string> files_of(const std::string& name) const;
  Dataset questions_of(const std::string& name, const std::string& answer_key) const;
  Dataset texts_of(const std::string& name) const;

  const config::UnlearningSection& section_;
  data::Encoder encoder_;
  data::QuestionTemplate form_;
  int64_t length_;
  std::map<std::string, Dataset> datasets_;  // by name, and by the field of the answer
};

}  // namespace lockstep::train
