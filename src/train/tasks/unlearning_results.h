// Result files of an unlearning benchmark, with open-unlearning's format and file names.
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
/// result file of Lockstep or open-unlearning, or has a number of rows other than `rows` (empty for
/// MUSE, which does not compare rows).
RetainedResults read_retained(const std::filesystem::path& path, const std::optional<size_t>& rows);

/// Returns the truth ratios of the forget set; empty if the results do not contain them.
std::vector<double> truth_ratios_of(const nlohmann::json& results);

/// Returns TOFU_EVAL.json or MUSE_EVAL.json.
const char* results_file(const config::UnlearningSection& section);
/// Writes results_file() (all results, with sorted keys) and TOFU_SUMMARY.json or MUSE_SUMMARY.json
/// (one number per metric of the section that has one) to `folder`.
void write_unlearning_results(
    const std::filesystem::path& folder,
    const nlohmann::json& results,
    const config::UnlearningSection& section);
/// Reads results_file() of the folder; an empty object if it does not exist. Throws Error (kConfig)
/// if it belongs to a model other than `model` (a hash of its weights).
nlohmann::json read_unlearning_results(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model);

}  // namespace lockstep::train
