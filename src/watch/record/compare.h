// What two runs differ in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "watch/record/run.h"

namespace lockstep::watch {

/// A value that differs; "-" where one of the runs has none.
struct Difference {
  std::string name, first, second;
};

struct Comparison {
  RunSummary first, second;
  std::vector<Difference> configuration;  // by key, but for output_dir
  std::vector<Difference> data;           // the data's identity: hashes, numbers of sequences
  std::vector<Difference> program;        // versions, builds, ranks, plan, machine
  std::vector<Difference> curves;         // last loss, least evaluations, tokens/s, goodput
  /// The first step that both logged whose losses are not the same number; nothing where all are.
  std::optional<int64_t> first_other_loss;
  int64_t common_losses = 0;  // steps whose losses both logged
};

/// Reads both runs whole. Throws Error (config) where a folder is no run's. `now`: seconds since
/// 1970.
Comparison compare_runs(
    const std::filesystem::path& first, const std::filesystem::path& second, double now);

/// What differs, of maps by name.
std::vector<Difference> differences(
    const std::map<std::string, std::string>& first,
    const std::map<std::string, std::string>& second);

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);
nlohmann::ordered_json to_json(const RunSummary& run);

/// The runs as a table with a line of titles.
std::string runs_table(const std::vector<RunSummary>& runs, const std::filesystem::path& base);

}  // namespace lockstep::watch
