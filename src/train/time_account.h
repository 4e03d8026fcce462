// Where the time of a run went: how much of it trained, and what the rest was spent on.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::train {

/// Seconds of this process by what they went to. A step's own are those between its beginning and
/// its update, without what stands beside it here.
class TimeAccount {
 public:
  enum class Use { kSteps, kStarting, kSaving, kEvaluating, kComparing };
  static constexpr int kUses = 5;

  /// The first step begins, `seconds` after the process did: what was not evaluated went into
  /// starting.
  void begin(double seconds) {
    add(Use::kStarting, seconds - seconds_.at(static_cast<size_t>(Use::kEvaluating)));
  }
  void add(Use use, double seconds) { seconds_.at(static_cast<size_t>(use)) += seconds; }
  /// Of the steps' seconds, those that this rank waited for data and for other ranks.
  void add_waits(double for_data, double for_ranks) {
    for_data_ += for_data;
    for_ranks_ += for_ranks;
  }

  /// Of `all` seconds of the process.
  double goodput(double all) const;
  /// "goodput 91%: of 130 s, 118 s went into steps (2 s waiting for data, 5 s for other ranks), 6 s
  /// into starting, ...".
  std::string text(double all) const;
  /// The same by name: {"goodput": .., "steps_s": .., ...}.
  nlohmann::ordered_json json(double all) const;

 private:
  std::array<double, kUses> seconds_{};
  double for_data_ = 0, for_ranks_ = 0;
};

/// Seconds since this process began, as the kernel counts them.
double process_seconds();

}  // namespace lockstep::train
