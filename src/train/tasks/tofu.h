// What a model knows of TOFU's authors (Maini et al., 2024), or of MUSE's texts (Shi et al., 2024),
// after it was to forget some: the metrics of open-unlearning, with its names, in its files.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"
#include "data/questions.h"
#include "train/tasks/answer_scores.h"

namespace lockstep::train {

/// A model that never saw what was to be forgotten, as its TOFU_EVAL.json tells of it.
struct RetainedResults {
  std::vector<double> truth_ratios;  // empty: none is told
  double min_k_auc = -1;             // below 0: none is told
};
/// Error (kData): no such file, what is no results of ours or open-unlearning's, or results of
/// another number of rows than `rows` (nothing: of MUSE, which compares none).
RetainedResults read_retained(const std::filesystem::path& path, const std::optional<size_t>& rows);

/// Computes the metrics of unlearning.metrics, and what they are made of. Every rank must call
/// everything, in the same order.
class TofuSuite {
 public:
  /// Error (kData, kConfig): files of unlearning.data_dir that the metrics need and that are not
  /// there, or whose rows lack a field; the retain model's results. `reader` null: that is all that
  /// is asked, and nothing is measured.
  TofuSuite(
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
  struct Dataset {
    data::Questions questions;
    std::map<std::string, std::vector<data::EncodedAnswer>> encoded;  // by answer's key
    std::map<std::string, std::vector<AnswerScore>> scored;
    data::QuestionTemplate form;  // of questions that come after examples
  };
  bool is_muse() const { return section_.benchmark == "muse"; }
  /// The set whose answers are to be forgotten; those that attacks tell apart, it or what it is of,
  /// and what no model has seen; and of MUSE the questions about what is, or is kept.
  std::string forgotten() const {
    return is_muse() ? "verbmem/forget" : section_.forget_split + "_perturbed";
  }
  std::array<std::string, 2> attacked() const {
    return is_muse() ? std::array<std::string, 2>{"privleak/forget", "privleak/holdout"}
                     : std::array<std::string, 2>{forgotten(), section_.holdout_split};
  }
  static std::string knowledge_of(const std::string& metric) {
    return "knowmem/" + metric.substr(0, metric.find('_')) + "_qa";
  }
  std::filesystem::path file_of(const std::string& name) const;
  Dataset questions_of(
      const std::string& name, const std::string& answer_key, const std::filesystem::path& file);
  Dataset texts_of(const std::string& name, const std::filesystem::path& file);
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
  std::vector<double> attack(const std::string& metric, const std::string& name);
  nlohmann::json membership(const std::string& metric);
  nlohmann::json forget_quality(nlohmann::json& results);
  nlohmann::json utility(nlohmann::json& results);
  nlohmann::json leakage(nlohmann::json& results);

  const config::Config& config_;
  const config::UnlearningSection& section_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int64_t> stop_tokens_;
  int64_t length_;
  AnswerReader* reader_;
  data::Encoder encoder_;
  data::QuestionTemplate form_;
  std::map<std::string, Dataset> datasets_;  // by name, and by the field of the answer
  RetainedResults retained_;
  std::map<std::string, std::vector<double>> reference_losses_;  // of sets that attacks tell apart
  std::vector<std::string> warnings_;
};

/// The truth ratios of what is to be forgotten in results; empty where there are none.
std::vector<double> truth_ratios_of(const nlohmann::json& results);

/// TOFU_EVAL.json, or MUSE_EVAL.json.
const char* results_file(const config::UnlearningSection& section);
/// The files of a folder: results_file() (everything, keys sorted) and TOFU_SUMMARY.json or
/// MUSE_SUMMARY.json (a number for each of the section's metrics that has one).
void write_tofu(
    const std::filesystem::path& folder,
    const nlohmann::json& results,
    const config::UnlearningSection& section);
/// What results_file() of the folder holds; an empty object where there is none. Error (kConfig):
/// it is of another model than `model` (a hash of its weights).
nlohmann::json read_tofu(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model);

}  // namespace lockstep::train
