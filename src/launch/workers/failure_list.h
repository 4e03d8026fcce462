// The failures of a round on many nodes, limited to what fits in one message, and detection of
// failures that a restart would repeat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/workers/failure_report.h"

namespace lockstep::launch {

/// Failures in the order of arrival. Beyond kMost they are only counted; a possible root cause
/// replaces a failure that merely lost a peer.
class FailureList {
 public:
  static constexpr size_t kMost = 8;

  void add(Failure failure);
  void add_all(const std::vector<Failure>& failures);
  /// Adds the failures of a message written by put_into(); invalid ones are skipped.
  void add_from(const nlohmann::json& message);
  /// Writes "failures" and "others" of a message.
  void put_into(nlohmann::json& message) const;

  bool empty() const { return failures_.empty(); }
  const std::vector<Failure>& failures() const { return failures_; }
  /// Number of failures left out.
  int64_t others() const { return others_; }

 private:
  std::vector<Failure> failures_;
  int64_t others_ = 0;
};

/// Detects failures that restarts cannot fix: a configuration error at once, and NaN or Inf at the
/// second time without progress in between, because a machine may err once.
class Repetition {
 public:
  /// Returns true if workers with these failures would fail again; `step` as in Progress::in_vain.
  /// Updates the counts.
  bool expected(const std::vector<Failure>& failures, std::optional<int64_t> step);

 private:
  int diverged_ = 0;
  std::optional<int64_t> diverged_at_;  // the furthest of their steps
};

/// Ends a job without progress: kMost failures in a row without a new step.
class Progress {
 public:
  static constexpr size_t kMost = 3;

  /// Called after a failed round; `step` is the last step that a worker began (-1: none; nullopt:
  /// not reported). Returns true if the job must not restart.
  bool in_vain(std::optional<int64_t> step, const std::string& why);
  /// Lists the rounds without progress and the cause of each, one per line.
  std::string told() const;

  nlohmann::json to_json() const;
  static Progress from_json(const nlohmann::json& object);

 private:
  std::optional<int64_t> furthest_;
  std::vector<std::string> in_vain_;  // cause of each failed round
};

/// Returns the cause of a failed round in one line: the message of the root cause, or `otherwise`
/// if there are no failures.
std::string cause_of(const std::vector<Failure>& failures, const std::string& otherwise);

}  // namespace lockstep::launch
