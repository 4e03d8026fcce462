// What training made of a classifier's rows since an epoch began.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::train {

/// Sums over the rows of all ranks, as the steps found them: with dropout, and by the weights of
/// then. A part of checkpoints.
struct EpochRows {
  double rows = 0;
  double loss = 0;                // of each row its step's mean
  std::optional<double> right{};  // that were told rightly; nothing where a row has no one label

  /// Of a step: its loss, the share of its rows that were told rightly, their number.
  void add(double step_loss, std::optional<double> accuracy, int64_t samples);
  /// train_loss and train_accuracy, where there are any.
  std::vector<std::pair<std::string, double>> values() const;
  /// The same for a line, two spaces before each.
  std::string text() const;
};

nlohmann::ordered_json to_json(const EpochRows& rows);
/// nlohmann::json::exception: it is not what to_json wrote.
EpochRows epoch_rows_of(const nlohmann::json& json);

}  // namespace lockstep::train
