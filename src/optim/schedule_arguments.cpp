// Parses training.lr_scheduler_kwargs.
#include "optim/schedule_arguments.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"

namespace lockstep::optim {

ScheduleArguments::ScheduleArguments(std::string type, const std::string& json)
    : type_(std::move(type)),
      values_(std::make_unique<nlohmann::json>(nlohmann::json::object())) {
  if (json.empty()) {
    return;
  }
  *values_ = parse_json(json, "training.lr_scheduler_kwargs", ErrorKind::kConfig);
  if (values_->is_null()) {
    *values_ = nlohmann::json::object();
  }
  if (!values_->is_object()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("training.lr_scheduler_kwargs is not a JSON object: {}", json));
  }
}

ScheduleArguments::~ScheduleArguments() = default;

const nlohmann::json* ScheduleArguments::find(const std::string& name) {
  known_.insert(name);
  const auto found = values_->find(name);
  return found == values_->end() || found->is_null() ? nullptr : &*found;
}

bool ScheduleArguments::has(const std::string& name) {
  return find(name) != nullptr;
}

std::optional<double> ScheduleArguments::maybe_number(const std::string& name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number()) {
    problem(fmt::format("{} is {}; it must be a number", name, value->dump()));
    return std::nullopt;
  }
  return value->get<double>();
}

double ScheduleArguments::number(const std::string& name, double otherwise) {
  return maybe_number(name).value_or(otherwise);
}

int64_t ScheduleArguments::whole(const std::string& name, int64_t otherwise, int64_t least) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) {
    return otherwise;
  }
  const double real = value->is_number() ? value->get<double>() : std::nan("");
  if (!(real >= static_cast<double>(least) && real < 9e15 && real == std::floor(real))) {
    problem(
        fmt::format("{} is {}; it must be an integer of at least {}", name, value->dump(), least));
    return otherwise;
  }
  return static_cast<int64_t>(real);
}

int64_t ScheduleArguments::needed_whole(const std::string& name) {
  if (!has(name)) {
    problem(fmt::format("{} is missing", name));
  }
  return whole(name, 0);
}

bool ScheduleArguments::boolean(const std::string& name, bool otherwise) {
  const nlohmann::json* value = find(name);
  if (value != nullptr && !value->is_boolean()) {
    problem(fmt::format("{} is {}; it must be true or false", name, value->dump()));
  }
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

std::string ScheduleArguments::choice(
    const std::string& name, const std::string& otherwise, std::span<const std::string> choices) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) {
    return otherwise;
  }
  std::string text = value->is_string() ? value->get<std::string>() : "";
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    problem(fmt::format(
        "{} is {}; it must be one of {}", name, value->dump(), fmt::join(choices, ", ")));
    return otherwise;
  }
  return text;
}

void ScheduleArguments::throw_problems(bool with_unknown) {
  std::vector<std::string> problems = problems_;
  if (with_unknown) {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [name, value] : values_->items()) {
      if (!known_.contains(name)) {
        problems.push_back(fmt::format(
            "unknown argument {} ({}).{}",
            name,
            known.empty() ? "it has no arguments"
                          : fmt::format("its arguments are {}", fmt::join(known, ", ")),
            did_you_mean(name, known)));
      }
    }
  }
  if (problems.empty()) {
    return;
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("the learning-rate schedule '{}': {}", type_, fmt::join(problems, "; ")),
      "change training.lr_scheduler_kwargs, or training.lr_scheduler_type");
}

}  // namespace lockstep::optim
