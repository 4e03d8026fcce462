// What a suite of unlearning writes and reads: results of open-unlearning's form, by its file
// names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"

namespace lockstep::train {

/// A model that never saw what was to be forgotten, as its TOFU_EVAL.json tells of it.
struct RetainedResults {
  std::vector<double> truth_ratios;  // empty: none is told
  double min_k_auc = -1;             // below 0: none is told
};
/// Error (kData): no such file, what is no results of ours or open-unlearning's, or results of
/// another number of rows than `rows` (nothing: of MUSE, which compares none).
RetainedResults read_retained(const std::filesystem::path& path, const std::optional<size_t>& rows);

/// The truth ratios of what is to be forgotten in results; empty where there are none.
std::vector<double> truth_ratios_of(const nlohmann::json& results);

/// TOFU_EVAL.json, or MUSE_EVAL.json.
const char* results_file(const config::UnlearningSection& section);
/// The files of a folder: results_file() (everything, keys sorted) and TOFU_SUMMARY.json or
/// MUSE_SUMMARY.json (a number for each of the section's metrics that has one).
void write_unlearning_results(
    const std::filesystem::path& folder,
    const nlohmann::json& results,
    const config::UnlearningSection& section);
/// What results_file() of the folder holds; an empty object where there is none. Error (kConfig):
/// it is of another model than `model` (a hash of its weights).
nlohmann::json read_unlearning_results(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model);

}  // namespace lockstep::train
