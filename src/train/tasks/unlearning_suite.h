// Unlearning metrics of TOFU (Maini et al., 2024) and MUSE (Shi et al., 2024), with
// open-unlearning's names and file format.
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

/// Computes the metrics of unlearning.metrics and their components. All methods must be called on
/// every rank, in the same order.
class UnlearningSuite {
 public:
  /// Checks the required files. Throws Error (kData, kConfig) if files of unlearning.data_dir or
  /// fields of their rows are missing, or if the retain model's results are invalid. If `reader` is
  /// null, only this check is possible; no metric can be computed.
  UnlearningSuite(
      const config::Config& config,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      std::vector<int64_t> stop_tokens,
      int64_t length,
      AnswerReader* reader);

  /// Computes the losses of the reference model, for mia_reference.
  void read_reference(AnswerReader& reader);
  /// Adds a metric and its components to `results`, unless they are already present.
  void measure(const std::string& name, nlohmann::json& results);
  /// Returns the mean -log p of the answer tokens, for each row of the forget set.
  std::vector<double> losses_of_forgotten();
  /// Returns the warnings, for example about a missing reference.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// Checks that a set has an answer field and marks the field as needed.
  void need(const std::string& name, const std::string& answer_key);
  const std::vector<AnswerScore>& scores(const std::string& name, const std::string& answer_key);
  /// Returns the losses, indexed by [row][answer].
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
  std::map<std::string, std::set<std::string>> needed_;     // needed answer fields, by set
  std::map<std::string, std::vector<AnswerScore>> scores_;  // by set and answer field
  std::set<std::string> written_together_;  // needed sets with the same question format
  std::map<std::string, std::vector<WrittenAnswer>> written_;  // by set
  RetainedResults retained_;
  std::map<std::string, std::vector<double>>
      reference_losses_;  // for the sets of membership attacks
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::train
