// Reads and writes trainer_state.json and the result files.
#include "monitor/trainer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/json_lines.h"
#include "base/json_number.h"

namespace lockstep::monitor {
namespace {

using json = nlohmann::json;

/// Returns a whole number as a JSON integer. Python writes these settings as integers in most
/// cases.
json whole_if_it_is(double value) {
  if (std::abs(value) < 9e15 && value == std::floor(value)) {
    return static_cast<int64_t>(value);
  }
  return value;
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json number_json(const Number& number) {
  return std::visit([](auto value) { return json(value); }, number);
}

template <class T>
T value_of(const json& value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (value.is_number_float()) {
      return bounded_integer_of(value.get<double>());
    }
  }
  return value.get<T>();
}

/// Reads `key` to `target` if it is present and not null.
template <class T>
void read(const json& from, const char* key, T& target) {
  if (const auto found = from.find(key); found != from.end() && !found->is_null()) {
    target = value_of<T>(*found);
  }
}
template <class T>
void read(const json& from, const char* key, std::optional<T>& target) {
  if (const auto found = from.find(key); found != from.end() && !found->is_null()) {
    target = value_of<T>(*found);
  }
}

json results_json(const Record& record) {
  json results{{"epoch", record.epoch}};
  for (const auto& [name, number] : record.values) {
    results[name] = number_json(number);
  }
  return results;
}

}  // namespace

std::string to_json(const TrainerState& state) {
  json history = json::array();
  for (const std::string& line : state.log_history) {
    history.push_back(json::parse(line));
  }
  const json file{
      {"best_global_step", or_null(state.best_global_step)},
      {"best_metric", or_null(state.best_metric)},
      {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
      {"epoch", state.epoch},
      {"eval_steps", whole_if_it_is(state.eval_steps)},
      {"global_step", state.global_step},
      {"is_hyper_param_search", false},
      {"is_local_process_zero", true},
      {"is_world_process_zero", true},
      {"log_history", history},
      {"logging_steps", whole_if_it_is(state.logging_steps)},
      {"max_steps", state.max_steps},
      {"num_input_tokens_seen", state.num_input_tokens_seen},
      {"num_train_epochs", whole_if_it_is(state.num_train_epochs)},
      {"save_steps", whole_if_it_is(state.save_steps)},
      {"stateful_callbacks", json::object()},
      {"total_flos", state.total_flos},
      {"train_batch_size", state.train_batch_size},
      {"trial_name", nullptr},
      {"trial_params", nullptr},
  };
  return file.dump(2) + "\n";
}

TrainerState parse_trainer_state(std::string_view text, std::string_view source) {
  const json file = parse_json(text, source, ErrorKind::kCheckpoint);
  TrainerState state;
  try {
    if (!file.is_object()) {
      throw Error(ErrorKind::kCheckpoint, fmt::format("{} is not a JSON object", source));
    }
    read(file, "epoch", state.epoch);
    read(file, "global_step", state.global_step);
    read(file, "max_steps", state.max_steps);
    read(file, "logging_steps", state.logging_steps);
    read(file, "eval_steps", state.eval_steps);
    read(file, "save_steps", state.save_steps);
    read(file, "train_batch_size", state.train_batch_size);
    read(file, "num_train_epochs", state.num_train_epochs);
    read(file, "num_input_tokens_seen", state.num_input_tokens_seen);
    read(file, "total_flos", state.total_flos);
    read(file, "best_metric", state.best_metric);
    read(file, "best_global_step", state.best_global_step);
    read(file, "best_model_checkpoint", state.best_model_checkpoint);
    if (const auto history = file.find("log_history"); history != file.end()) {
      for (const json& line : *history) {
        add_to_history(state.log_history, line.dump());
      }
    }
  } catch (const json::exception& error) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{}: {}", source, error.what()));
  }
  return state;
}

TrainerState read_trainer_state(const std::filesystem::path& path) {
  return parse_trainer_state(
      read_file(path, ErrorKind::kCheckpoint, kLongestJsonTable), path.string());
}

void add_to_history(std::vector<std::string>& history, std::string line) {
  if (history.size() >= kMostHistory) {
    std::array<bool, 2> is_kept{};  // by kind; the first line of each stays
    std::erase_if(history, [&](const std::string& old) {
      bool& kept = is_kept.at(json::parse(old).contains("loss") ? 1 : 0);
      kept = !kept;
      return !kept;
    });
  }
  history.push_back(std::move(line));
}

std::string history_line(const Record& record) {
  json line = results_json(record);
  line["step"] = record.step;
  return line.dump();
}

std::vector<std::string> history_until(const std::filesystem::path& metrics, int64_t step) {
  std::vector<std::string> lines;
  for_each_line(metrics, [&](std::string_view line) {
    const json record = parse_json_line(line);
    const auto found = record.find("step");
    if (found != record.end() && found->is_number_integer() && found->get<int64_t>() <= step) {
      add_to_history(lines, record.dump());
    }
  });
  return lines;
}

void write_results(
    const std::filesystem::path& folder, std::string_view split, const Record& record) {
  const json results = results_json(record);
  write_file_atomically(folder / fmt::format("{}_results.json", split), results.dump(4) + "\n");
  const std::filesystem::path all_path = folder / "all_results.json";
  json all = json::object();
  if (std::filesystem::exists(all_path)) {
    all = read_json(all_path);
    if (!all.is_object()) {
      all = json::object();
    }
  }
  all.update(results);
  write_file_atomically(all_path, all.dump(4) + "\n");
}

}  // namespace lockstep::monitor
