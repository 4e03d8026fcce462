// Writes runs in the format of MLflow's file store.
#include "monitor/mlflow_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json_lines.h"
#include "base/parse_double.h"
#include "monitor/metrics.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeta = "meta.yaml";
constexpr size_t kDigits = 18;  // length of an experiment id

/// Quotes a string for YAML. JSON strings are valid YAML.
std::string yaml_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Returns the value of a key in a file of "key: value" lines, or an empty string.
std::string value_of(const std::string& yaml, const std::string& key) {
  const std::string begin = "\n" + key + ": ";
  const std::string text = "\n" + yaml;
  const size_t at = text.find(begin);
  if (at == std::string::npos) {
    return "";
  }
  const size_t from = at + begin.size();
  std::string value = text.substr(from, text.find('\n', from) - from);
  if (value.starts_with('"')) {
    const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
    return json.is_string() ? json.get<std::string>() : "";
  }
  if (value.size() >= 2 && value.starts_with('\'')) {
    value = value.substr(1, value.size() - 2);
    for (size_t two = value.find("''"); two != std::string::npos; two = value.find("''", two + 1)) {
      value.erase(two, 1);
    }
  }
  return value;
}

std::string address_of(const fs::path& folder) {
  return "file://" + folder.string();
}

void write_meta(const fs::path& folder, const std::map<std::string, std::string>& values) {
  std::string text;
  for (const auto& [key, value] : values) {
    text += fmt::format("{}: {}\n", key, value);
  }
  create_folders(folder);
  write_file_atomically(folder / kMeta, text);
}

/// Returns the id of the experiment with this name. Creates the experiment if it does not exist.
/// The id is derived from the name, so that runs that start at the same time create the same
/// experiment.
std::string experiment_of(const fs::path& store, const std::string& name, double time) {
  std::error_code none;
  for (const auto& each : fs::directory_iterator(store, none)) {
    if (!fs::exists(each.path() / kMeta, none)) {
      continue;
    }
    const std::string meta = read_file(each.path() / kMeta);
    if (value_of(meta, "name") == name && value_of(meta, "lifecycle_stage") == "active") {
      return each.path().filename().string();
    }
  }
  std::string number;
  for (const char digit : hash_hex(name).substr(0, kDigits)) {
    number += static_cast<char>('1' + (digit <= '9' ? digit - '0' : digit - 'a') % 9);
  }
  const std::string now = std::to_string(mlflow_time(time));
  write_meta(
      store / number,
      {{"artifact_location", yaml_text(address_of(store / number))},
       {"creation_time", now},
       {"experiment_id", yaml_text(number)},
       {"last_update_time", now},
       {"lifecycle_stage", "active"},
       {"name", yaml_text(name)}});
  return number;
}

void write_each(const fs::path& folder, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    create_folders((folder / name).parent_path());
    write_file_atomically(folder / name, value);
  }
}

std::string metric_text(double value) {
  return std::isnan(value)   ? "nan"
         : std::isinf(value) ? (value > 0 ? "inf" : "-inf")
                             : number_text(value);
}

}  // namespace

MlflowFolder::MlflowFolder(const MlflowOptions& options, bool resumed) : options_(options) {
  create_folders(options_.store, ErrorKind::kConfig);
  options_.store = fs::canonical(options_.store);
  const fs::path kept = options_.folder / "mlflow.json";
  if (resumed && fs::exists(kept)) {
    const nlohmann::json run = parse_json_line(read_file(kept));
    run_id_ = text_at(run, "run_id");
    experiment_ = text_at(run, "experiment");
    folder_ = options_.store / experiment_ / run_id_;
    if (const fs::path meta = folder_ / kMeta; !experiment_.empty() && fs::exists(meta)) {
      const std::string text = read_file(meta);
      options_.name = value_of(text, "run_name");
      options_.start_time = parse_double(value_of(text, "start_time").c_str()) / 1000;
      write_run("RUNNING", 0);
      return;
    }
  }
  experiment_ = experiment_of(options_.store, options_.experiment, options_.start_time);
  run_id_ =
      hash_hex(fmt::format("{} {} {}", options_.folder.string(), ::getpid(), options_.start_time));
  folder_ = options_.store / experiment_ / run_id_;
  if (options_.name.empty()) {
    options_.name = options_.folder.filename().string();
  }
  create_folders(folder_ / "artifacts");
  create_folders(folder_ / "metrics");
  write_each(folder_ / "params", mlflow_parameters(options_));
  std::map<std::string, std::string> tags{{"mlflow.runName", options_.name}};
  for (const auto& [name, value] : options_.tags) {
    tags[mlflow_name(name)] = value;
  }
  write_each(folder_ / "tags", tags);
  write_run("RUNNING", 0);
  write_file_atomically(
      kept, nlohmann::json{{"run_id", run_id_}, {"experiment", experiment_}}.dump() + "\n");
}

void MlflowFolder::write_run(const std::string& status, double end_time) {
  const std::map<std::string, int> numbers{
      {"RUNNING", 1}, {"FINISHED", 3}, {"FAILED", 4}, {"KILLED", 5}};
  const char* const user = std::getenv("USER");
  write_meta(
      folder_,
      {{"artifact_uri", yaml_text(address_of(folder_ / "artifacts"))},
       {"end_time", end_time > 0 ? std::to_string(mlflow_time(end_time)) : "null"},
       {"entry_point_name", "''"},
       {"experiment_id", yaml_text(experiment_)},
       {"lifecycle_stage", "active"},
       {"run_id", yaml_text(run_id_)},
       {"run_name", yaml_text(options_.name)},
       {"run_uuid", yaml_text(run_id_)},
       {"source_name", "''"},
       {"source_type", "4"},
       {"source_version", "''"},
       {"start_time", std::to_string(mlflow_time(options_.start_time))},
       {"status", std::to_string(numbers.at(status))},
       {"tags", "[]"},
       {"user_id", yaml_text(user != nullptr ? user : "")}});
}

void MlflowFolder::log(const Record& record) {
  const auto add = [&](const std::string& name, double value) {
    const fs::path path = folder_ / "metrics" / mlflow_name(tracker_name(name));
    std::ofstream& file = metrics_[name];
    if (!file.is_open()) {
      create_folders(path.parent_path());
      file.open(path, std::ios::app);
    }
    file << fmt::format(
                "{} {} {}\n", mlflow_time(record.wall_time), metric_text(value), record.step)
         << std::flush;
    if (!file) {
      throw system_error(ErrorKind::kCheckpoint, "write", path);
    }
  };
  add("epoch", record.epoch);
  for (const auto& [name, number] : record.values) {
    add(name, as_double(number));
  }
}

void MlflowFolder::log_event(std::string_view name, double wall_time) {
  if (const auto end = mlflow_end(name)) {
    write_run(*end, wall_time);
  }
}

}  // namespace lockstep::monitor
