// Time of a run by activity: training, starting, saving, evaluating.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::train {

/// Seconds of this process by activity. kSteps covers each step from its start to its update,
/// without the other activities.
class TimeAccount {
 public:
  enum class Use { kSteps, kStarting, kSaving, kEvaluating, kComparing };
  static constexpr int kUses = 5;

  /// Marks the start of the first step, `seconds` after the start of the process. All time until
  /// then except evaluation counts as starting.
  void begin(double seconds) {
    add(Use::kStarting, seconds - seconds_.at(static_cast<size_t>(Use::kEvaluating)));
  }
  void add(Use use, double seconds) { seconds_.at(static_cast<size_t>(use)) += seconds; }
  /// Adds the seconds for which this rank waited for data and for other ranks in a step.
  void add_waits(double for_data, double for_ranks) {
    for_data_ += for_data;
    for_ranks_ += for_ranks;
  }

  /// Returns the goodput, the share of the process's time, `all` seconds, that was spent on
  /// training.
  double goodput(double all) const;
  /// Returns a summary: "goodput 91%: of 130 s, 118 s went into steps (2 s waiting for data, 5 s
  /// for other ranks), 6 s into starting, ...".
  std::string text(double all) const;
  /// Returns the same values as JSON: {"goodput": .., "steps_s": .., ...}.
  nlohmann::ordered_json json(double all) const;

 private:
  std::array<double, kUses> seconds_{};
  double for_data_ = 0, for_ranks_ = 0;
};

/// Returns the seconds since the kernel started this process.
double process_seconds();

}  // namespace lockstep::train
