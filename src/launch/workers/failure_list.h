// Failures of a round on many nodes, limited so that they fit in one message. Also detects failures
// that would occur again after a restart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/workers/failure_report.h"

namespace lockstep::launch {

/// Failures in order of arrival. Up to kMost are stored; further ones are counted. A possible root
/// cause replaces a stored failure that merely reports a lost peer.
class FailureList {
 public:
  static constexpr size_t kMost = 8;

  void add(Failure failure);
  void add_all(const std::vector<Failure>& failures);
  /// Adds the failures of a message written by put_into(). Skips invalid ones.
  void add_from(const nlohmann::json& message);
  /// Writes "failures" and "others" to a message.
  void put_into(nlohmann::json& message) const;

  bool empty() const { return failures_.empty(); }
  const std::vector<Failure>& failures() const { return failures_; }
  /// Returns the number of failures that are only counted.
  int64_t others() const { return others_; }

 private:
  std::vector<Failure> failures_;
  int64_t others_ = 0;
};

/// Detects failures that a restart cannot fix. These are configuration errors, and NaN or Inf that
/// occurs a second time without progress. The first time, a restart is useful because it may have
/// been a transient hardware error.
class Repetition {
 public:
  /// Returns true if workers with these failures would fail again after a restart. Updates the
  /// counts. For `step`, see Progress::in_vain.
  bool expected(const std::vector<Failure>& failures, std::optional<int64_t> step);

 private:
  int diverged_ = 0;
  std::optional<int64_t> diverged_at_;  // furthest step of the failures with NaN or Inf
};

/// Detects a job without progress: kMost failed rounds in a row without a new step.
class Progress {
 public:
  static constexpr size_t kMost = 3;

  /// Must be called after a failed round. `step` is the last step that a worker began (-1: none;
  /// nullopt: not reported). Returns true if the job must not restart.
  bool in_vain(std::optional<int64_t> step, const std::string& why);
  /// Returns the rounds without progress and their causes, one per line.
  std::string told() const;

  nlohmann::json to_json() const;
  static Progress from_json(const nlohmann::json& object);

 private:
  std::optional<int64_t> furthest_;
  std::vector<std::string> in_vain_;  // cause of each failed round
};

/// Returns the cause of a failed round in one line: the message of the root cause. Returns
/// `otherwise` if there are no failures.
std::string cause_of(const std::vector<Failure>& failures, const std::string& otherwise);

}  // namespace lockstep::launch
