// Arguments of a schedule (training.lr_scheduler_kwargs), read by name. Problems are collected and
// then reported together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::optim {

class ScheduleArguments {
 public:
  /// `json` is an object, or empty for no arguments. Throws Error(kConfig) for any other value.
  ScheduleArguments(std::string type, const std::string& json);
  ~ScheduleArguments();
  ScheduleArguments(const ScheduleArguments&) = delete;
  ScheduleArguments& operator=(const ScheduleArguments&) = delete;

  // Each function reads one argument and returns `otherwise` if it is missing or null.
  double number(const std::string& name, double otherwise);
  std::optional<double> maybe_number(const std::string& name);
  int64_t whole(const std::string& name, int64_t otherwise, int64_t least = 0);
  int64_t needed_whole(const std::string& name);
  std::string choice(
      const std::string& name, const std::string& otherwise, std::span<const std::string> choices);
  bool boolean(const std::string& name, bool otherwise);
  bool has(const std::string& name);

  void problem(std::string message) { problems_.push_back(std::move(message)); }
  /// Throws Error(kConfig) with all problems, if any. If `with_unknown` is set, also reports
  /// arguments that were never read.
  void throw_problems(bool with_unknown);

 private:
  const nlohmann::json* find(const std::string& name);

  std::string type_;
  std::unique_ptr<nlohmann::json> values_;
  std::set<std::string> known_;
  std::vector<std::string> problems_;
};

}  // namespace lockstep::optim
