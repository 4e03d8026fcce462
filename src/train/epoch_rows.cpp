// Computes the training loss and accuracy of a classifier per epoch.
#include "train/epoch_rows.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::train {

void EpochRows::add(double step_loss, std::optional<double> accuracy, int64_t samples) {
  if (!std::isfinite(step_loss)) {  // a skipped float16 step
    return;
  }
  const auto count = static_cast<double>(samples);
  rows += count;
  loss += count * step_loss;
  if (accuracy) {
    right = right.value_or(0) + count * *accuracy;
  }
}

std::vector<std::pair<std::string, double>> EpochRows::values() const {
  std::vector<std::pair<std::string, double>> result;
  if (rows > 0) {
    result.emplace_back("train_loss", loss / rows);
    if (right) {
      result.emplace_back("train_accuracy", *right / rows);
    }
  }
  return result;
}

std::string EpochRows::text(double epoch) const {
  std::string line = rows > 0 ? fmt::format("  epoch {:.2f}", epoch) : "";
  for (const auto& [name, value] : values()) {
    line += fmt::format("  {} {:.4f}", name, value);
  }
  return line;
}

nlohmann::ordered_json to_json(const EpochRows& rows) {
  nlohmann::ordered_json json{{"rows", rows.rows}, {"loss", rows.loss}};
  if (rows.right) {
    json["right"] = *rows.right;
  }
  return json;
}

EpochRows epoch_rows_of(const nlohmann::json& json) {
  EpochRows rows{json.at("rows"), json.at("loss")};
  if (json.contains("right")) {
    rows.right = json.at("right").get<double>();
  }
  return rows;
}

}  // namespace lockstep::train
