// Converts lr_scheduler_kwargs to JSON.
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "config/core/fields.h"
#include "train/checkpointing.h"

namespace lockstep::train {
namespace {

/// Collects the arguments that are set.
struct Given {
  nlohmann::json values = nlohmann::json::object();

  template <class Value>
  void operator()(const config::Field& field, const std::optional<Value>& value) {
    if (value) {
      values[std::string(field.name)] = *value;
    }
  }
};

}  // namespace

std::string scheduler_arguments(const config::TrainingSection& training) {
  Given given;
  config::visit_fields(training.lr_scheduler_kwargs, given);
  return given.values.empty() ? "" : given.values.dump();
}

}  // namespace lockstep::train
