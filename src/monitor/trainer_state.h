// trainer_state.json and the result files, in the format of Hugging Face's Trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/record.h"

namespace lockstep::monitor {

/// State of a run. Members have the names of the keys in the file.
struct TrainerState {
  double epoch = 0.0;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  double logging_steps = 500;
  double eval_steps = 500;
  double save_steps = 500;
  int64_t train_batch_size = 0;
  double num_train_epochs = 0;  // a whole number is written as an integer
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::optional<double> best_metric{};
  std::optional<int64_t> best_global_step{};
  std::optional<std::string> best_model_checkpoint{};
  /// JSON objects, one per log line. They are stored as text, so that unknown fields of other
  /// versions are preserved.
  std::vector<std::string> log_history{};
};

/// Adds a line to a log_history. If it would have more than kMostHistory lines, every second line
/// is removed first: of those with a training loss, and of all others, such as evaluations. Saving
/// and resuming then take the same time at any length of the run; metrics.jsonl has every line.
inline constexpr size_t kMostHistory = 16384;
void add_to_history(std::vector<std::string>& history, std::string line);

/// Returns the content of the file: JSON with sorted keys and an indent of 2.
std::string to_json(const TrainerState& state);
/// Parses the file. Ignores unknown keys; missing ones keep their defaults. Throws Error
/// (checkpoint) that names `source`.
TrainerState parse_trainer_state(std::string_view json, std::string_view source);
TrainerState read_trainer_state(const std::filesystem::path& path);

/// Returns the line of a record in log_history: {"epoch": .., "step": .., ...} with sorted keys.
std::string history_line(const Record& record);

/// Returns the log_history of a metrics.jsonl up to a step. Skips an incomplete last line.
std::vector<std::string> history_until(const std::filesystem::path& metrics, int64_t step);

/// Writes `<split>_results.json` to `folder`, with "epoch" and the record's values, sorted keys and
/// an indent of 4. Merges the values into all_results.json. `split` is "train", "eval" or "test".
void write_results(
    const std::filesystem::path& folder, std::string_view split, const Record& record);

}  // namespace lockstep::monitor
