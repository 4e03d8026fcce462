// What a model knows of TOFU's authors (Maini et al., 2024) after it was to forget some: the
// metrics of open-unlearning, with its names, in its files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"
#include "data/questions.h"
#include "train/answer_scores.h"

namespace lockstep::train {

/// A model that never saw what was to be forgotten, as its TOFU_EVAL.json tells of it.
struct RetainedResults {
  std::vector<double> truth_ratios;  // empty: none is told
  double min_k_auc = -1;             // below 0: none is told
};
/// Error (kData): no such file, what is no results of ours or open-unlearning's, or results of
/// another number of rows than `rows`.
RetainedResults read_retained(const std::filesystem::path& path, size_t rows);

/// Computes the metrics of unlearning.metrics, and what they are made of. Every rank must call
/// everything, in the same order.
class TofuSuite {
 public:
  /// Error (kData, kConfig): files of unlearning.data_dir that the metrics need and that are not
  /// there, or whose rows lack a field; the retain model's results.
  TofuSuite(
      const config::Config& config,
      const std::shared_ptr<const text::Tokenizer>& tokenizer,
      std::vector<int64_t> stop_tokens,
      int64_t length,
      AnswerReader& reader);

  /// Puts a metric, and what it is made of, into `results`; nothing where it is there.
  void measure(const std::string& name, nlohmann::json& results);
  /// Things to tell, such as a reference that was not given.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Dataset {
    data::Questions questions;
    std::map<std::string, std::vector<data::EncodedAnswer>> encoded;  // by answer's key
    std::map<std::string, std::vector<AnswerScore>> scored;
  };
  Dataset& dataset(const std::string& name, const std::string& answer_key);
  const std::vector<AnswerScore>& scores(const std::string& name, const std::string& answer_key);
  /// [row][answer]
  std::vector<std::vector<double>> losses(const std::string& name, const std::string& answer_key);

  nlohmann::json make(const std::string& name, nlohmann::json& results);
  nlohmann::json probabilities(const std::string& name, const std::string& answer_key);
  nlohmann::json rouges(const std::string& name);
  nlohmann::json among_options(const std::string& name);
  nlohmann::json truth_ratios(
      const std::string& name, const std::string& correct_key, bool truth_is_better);
  nlohmann::json of_tokens(const std::string& metric);
  nlohmann::json membership(const std::string& metric);
  nlohmann::json forget_quality(nlohmann::json& results);
  nlohmann::json utility(nlohmann::json& results);
  nlohmann::json leakage(nlohmann::json& results);

  const config::Config& config_;
  const config::UnlearningSection& section_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int64_t> stop_tokens_;
  int64_t length_;
  AnswerReader& reader_;
  data::Encoder encoder_;
  data::QuestionTemplate form_;
  std::map<std::string, Dataset> datasets_;  // by name, and by the field of the answer
  RetainedResults retained_;
  std::vector<std::string> warnings_;
};

/// The files of a folder: TOFU_EVAL.json (everything, keys sorted) and TOFU_SUMMARY.json (a number
/// for each of `metrics` that has one).
void write_tofu(
    const std::filesystem::path& folder,
    const nlohmann::json& results,
    const std::vector<std::string>& metrics);
/// What TOFU_EVAL.json of the folder holds; an empty object where there is none. Error (kConfig):
/// it is of another model than `model` (a hash of its weights).
nlohmann::json read_tofu(const std::filesystem::path& folder, const std::string& model);

}  // namespace lockstep::train
