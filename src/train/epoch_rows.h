// Training loss and accuracy of a classifier since the start of the epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::train {

/// Sums over the rows of all ranks in this epoch. Loss and accuracy are those measured in the
/// steps, with dropout and with the weights of that step. Saved in checkpoints.
struct EpochRows {
  double rows = 0;
  double loss = 0;  // sum over the rows of the mean loss of their step
  std::optional<double>
      right{};  // number of correctly classified rows; empty for multi-label rows and regression

  /// Adds a step: its loss, the share of correctly classified rows and the number of rows.
  void add(double step_loss, std::optional<double> accuracy, int64_t samples);
  /// Returns train_loss and train_accuracy, if available.
  std::vector<std::pair<std::string, double>> values() const;
  /// Returns the same values for a log line, each after two spaces and the first after the epoch;
  /// empty if there are none.
  std::string text(double epoch) const;
};

nlohmann::ordered_json to_json(const EpochRows& rows);
/// Throws nlohmann::json::exception if `json` was not written by to_json.
EpochRows epoch_rows_of(const nlohmann::json& json);

}  // namespace lockstep::train
