// Reads and writes the result files of unlearning.
#include "train/tasks/unlearning_results.h"

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "config/core/unlearning.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

constexpr const char* kModelKey = "model_hash";

}  // namespace

std::vector<double> truth_ratios_of(const json& results) {
  std::vector<double> ratios;
  // Summary files contain a number here instead of rows.
  const json::json_pointer place("/forget_truth_ratio/value_by_index");
  if (!results.is_object() || !results.contains(place)) {
    return ratios;
  }
  for (const auto& [index, value] : results.at(place).items()) {
    if (value.is_object() && value.contains("score") && value["score"].is_number()) {
      ratios.push_back(value["score"]);
    }
  }
  return ratios;
}

RetainedResults read_retained(
    const std::filesystem::path& path, const std::optional<size_t>& rows) {
  RetainedResults found;
  const auto fail = [&](const std::string& what) {
    throw Error(
        ErrorKind::kData,
        fmt::format("unlearning.retain_logs_path: {} {}", path.string(), what),
        "use the TOFU_EVAL.json of a model that was trained without the forget set, evaluated on "
        "the same files");
  };
  if (!std::filesystem::exists(path)) {
    fail("does not exist");
  }
  const json results = read_json(path, ErrorKind::kData, kLongestJsonTable);
  const char* key = rows ? "forget_truth_ratio" : "mia_min_k";
  if (!results.is_object() || !results.contains(key)) {
    fail(fmt::format("has no {}", key));
  }
  found.truth_ratios = truth_ratios_of(results);
  if (rows && found.truth_ratios.size() != *rows) {
    fail(fmt::format("has {} rows, but forget_split has {}", found.truth_ratios.size(), *rows));
  }
  if (const auto attack = results.find("mia_min_k"); attack != results.end() &&
                                                     attack->contains("agg_value") &&
                                                     (*attack)["agg_value"].is_number()) {
    found.min_k_auc = (*attack)["agg_value"];
  }
  return found;
}

const char* results_file(const config::UnlearningSection& section) {
  return section.benchmark == "muse" ? "MUSE_EVAL.json" : "TOFU_EVAL.json";
}

void write_unlearning_results(
    const std::filesystem::path& folder,
    const json& results,
    const config::UnlearningSection& section) {
  constexpr int kIndent = 4;
  create_folders(folder, ErrorKind::kRun);
  write_file_atomically(folder / results_file(section), results.dump(kIndent), ErrorKind::kRun);
  json summary = json::object();
  for (const std::string& metric : config::metrics_of(section)) {
    const auto found = results.find(metric);
    if (found != results.end() && found->contains("agg_value") &&
        found->at("agg_value").is_number()) {
      summary[metric] = found->at("agg_value");
    }
  }
  const char* name = section.benchmark == "muse" ? "MUSE_SUMMARY.json" : "TOFU_SUMMARY.json";
  write_file_atomically(folder / name, summary.dump(kIndent), ErrorKind::kRun);
}

json read_unlearning_results(
    const std::filesystem::path& folder,
    const config::UnlearningSection& section,
    const std::string& model) {
  const std::filesystem::path path = folder / results_file(section);
  if (!std::filesystem::exists(path)) {
    return json::object({{kModelKey, model}});
  }
  json results = read_json(path, ErrorKind::kData, kLongestJsonTable);
  const std::string there =
      results.is_object() && results.contains(kModelKey) && results[kModelKey].is_string()
          ? results[kModelKey].get<std::string>()
          : "";
  if (there != model) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} {}",
            path.string(),
            there.empty() ? "does not name its model" : "belongs to another model"),
        "set unlearning.overwrite=true to measure everything again, or use another folder");
  }
  return results;
}

}  // namespace lockstep::train
