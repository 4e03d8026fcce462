// Compares two runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "watch/record/run.h"

namespace lockstep::watch {

/// Value in which two runs differ. "-" if a run does not have it.
struct Difference {
  std::string name, first, second;
};

struct Comparison {
  RunSummary first, second;
  std::vector<Difference> configuration;  // by key, without output_dir
  std::vector<Difference> data;           // dataset hashes and numbers of sequences
  std::vector<Difference> program;        // versions, builds, ranks, plan, machine
  std::vector<Difference> curves;         // last loss, lowest evaluation metrics, tokens/s, goodput
  /// First step whose loss both runs logged with different values. nullopt if there is none.
  std::optional<int64_t> first_other_loss;
  int64_t common_losses = 0;  // number of steps whose loss both runs logged
};

/// Reads both runs completely. `now` is in seconds since 1970. Throws Error (config) if a folder
/// does not contain a run.
Comparison compare_runs(
    const std::filesystem::path& first, const std::filesystem::path& second, double now);

/// Returns the entries in which two maps differ, by name.
std::vector<Difference> differences(
    const std::map<std::string, std::string>& first,
    const std::map<std::string, std::string>& second);

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);
nlohmann::ordered_json to_json(const RunSummary& run);

/// Formats the runs as a table with a header line.
std::string runs_table(const std::vector<RunSummary>& runs, const std::filesystem::path& base);

}  // namespace lockstep::watch
