// What a model knows of TOFU's authors (Maini et al., 2024), or of MUSE's texts (Shi et al., 2024),
// after it was to forget some: the metrics of open-unlearning, with its names, in its files.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"
#include "train/tasks/answer_scores.h"
#include "train/tasks/unlearning_questions.h"
#include "train/tasks/unlearning_results.h"

namespace lockstep::train {

/// Computes the metrics of unlearning.metrics, and what they are made of. Every rank must call
/// everything, in the same order.
class UnlearningSuite {
 public:
  /// Error (kData, kConfig): files of unlearning.data_dir that the metrics need and that are not
  /// there, or whose rows lack a field; the retain model's results. `reader` null: that is all that
  /// is asked, and nothing is measured.
  UnlearningSuite(
      const config::Config& config,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      std::vector<int64_t> stop_tokens,
      int64_t length,
      AnswerReader* reader);

  /// For mia_reference: the losses of another model.
  void read_reference(AnswerReader& reader);
  /// Puts a metric, and what it is made of, into `results`; nothing where it is there.
  void measure(const std::string& name, nlohmann::json& results);
  /// Of each row to be forgotten, the mean -log p of its answer's tokens.
  std::vector<double> losses_of_forgotten();
  /// Things to tell, such as a reference that was not given.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// Reads a set's answers of that field, which some metric needs.
  void need(const std::string& name, const std::string& answer_key);
  const std::vector<AnswerScore>& scores(const std::string& name, const std::string& answer_key);
  /// [row][answer]
  std::vector<std::vector<double>> losses(const std::string& name, const std::string& answer_key);

  std::vector<AskedQuestion> asked(const std::string& name);
  const std::vector<WrittenAnswer>& written(const std::string& name);
  nlohmann::json make(const std::string& name, nlohmann::json& results);
  nlohmann::json probabilities(const std::string& name, const std::string& answer_key);
  nlohmann::json rouges(const std::string& name);
  nlohmann::json among_options(const std::string& name);
  nlohmann::json truth_ratios(
      const std::string& name, const std::string& correct_key, bool truth_is_better);
  nlohmann::json of_tokens(const std::string& metric);
  std::vector<double> attack(const std::string& metric, const std::string& name);
  nlohmann::json membership(const std::string& metric);
  nlohmann::json forget_quality(nlohmann::json& results);
  nlohmann::json utility(nlohmann::json& results);
  nlohmann::json leakage(nlohmann::json& results);

  const config::UnlearningSection& section_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int64_t> stop_tokens_;
  AnswerReader* reader_;
  UnlearningQuestions questions_;
  std::map<std::string, std::set<std::string>> needed_;  // fields of answers, by set
  std::map<std::string, std::vector<AnswerScore>>
      scores_;                              // by set, and by the field of the answer
  std::set<std::string> written_together_;  // sets that are asked alike, and will be
  std::map<std::string, std::vector<WrittenAnswer>> written_;  // by set
  RetainedResults retained_;
  std::map<std::string, std::vector<double>> reference_losses_;  // of sets that attacks tell apart
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::train
