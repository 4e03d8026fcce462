// trainer_state.json and the result files beside it, as Hugging Face's Trainer lays them out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/record.h"

namespace lockstep::monitor {

/// The state of a run, with the file's names.
struct TrainerState {
  double epoch = 0.0;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  double logging_steps = 500;
  double eval_steps = 500;
  double save_steps = 500;
  int64_t train_batch_size = 0;
  double num_train_epochs = 0;  // a whole number is written as one
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::optional<double> best_metric{};
  std::optional<int64_t> best_global_step{};
  std::optional<std::string> best_model_checkpoint{};
  /// JSON objects, one a logged line; kept as text so that what another version wrote survives.
  std::vector<std::string> log_history{};
};

/// The file's text: JSON, indent 2, keys sorted.
std::string to_json(const TrainerState& state);
/// Reads it back; unknown keys are ignored, missing ones keep their defaults. Throws
/// Error(kCheckpoint) that names `source`.
TrainerState parse_trainer_state(std::string_view json, std::string_view source);
TrainerState read_trainer_state(const std::filesystem::path& path);

/// The line of a record in log_history: {"epoch": .., "step": .., ...}, keys sorted.
std::string history_line(const Record& record);

/// The lines of log_history from a metrics.jsonl, up to that step; a torn last line is left out.
std::vector<std::string> history_until(const std::filesystem::path& metrics, int64_t step);

/// Writes `<split>_results.json` (indent 4, keys sorted: "epoch" and the record's values) into
/// `folder`, and merges the same into all_results.json there. `split`: "train", "eval", "test".
void write_results(
    const std::filesystem::path& folder, std::string_view split, const Record& record);

}  // namespace lockstep::monitor
