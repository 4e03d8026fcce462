// Result files of an unlearning benchmark, in open-unlearning's format and with its file names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"

namespace lockstep::train {

/// Results of a retain model (trained without the forget set), from its TOFU_EVAL.json.
struct RetainedResults {
  std::vector<double> truth_ratios;  // empty: not available
  double min_k_auc = -1;             // negative: not available
};
/// Reads the results of a retain model. Throws Error (kData) if the file does not exist, is not a
/// result file of Lockstep or open-unlearning, or has a number of rows other than `rows`. `rows` is
/// empty for MUSE, which does not compare rows.
RetainedResults read_retained(const std::filesystem::path& path, const std::optional<size_t>& rows);

/// Returns the truth ratios of the forget set. Empty if the results do not contain them.
std::vector<double> truth_ratios_of(const nlohmann::json& results);

/// Returns the name of the result file: TOFU_EVAL.json or MUSE_EVAL.json.
const char* results_file(const config::UnlearningSection& section);
/// Writes two files to `folder`: results_file() with all results, sorted by key, and
/// TOFU_SUMMARY.json or MUSE_SUMMARY.json with one number per metric of the section, if the metric
/// has one.
void write_unlearning_results(
    const std::filesystem::path& folder,
    const nlohmann::json& results,
    const config::UnlearningSection& section);
/// Reads results_file() of the folder. Returns an empty object if it does not exist. Throws Error
/// (kConfig) if its results belong to another model; `model` is a hash of the model's weights.
nlohmann::json read_unlearning_results(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model);

}  // namespace lockstep::train
