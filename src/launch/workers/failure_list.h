// The failures of a round on many machines, as many as travel in one message, and whether another
// start would only bring them again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/workers/failure_report.h"

namespace lockstep::launch {

/// Failures in the order of their arrival. Beyond kMost they are counted alone; one that may be the
/// root cause takes the place of one that merely lost a peer.
class FailureList {
 public:
  static constexpr size_t kMost = 8;

  void add(Failure failure);
  void add_all(const std::vector<Failure>& failures);
  /// Those of a message that was made by put_into(). What is none of these is left out.
  void add_from(const nlohmann::json& message);
  /// "failures" and "others" of a message.
  void put_into(nlohmann::json& message) const;

  bool empty() const { return failures_.empty(); }
  const std::vector<Failure>& failures() const { return failures_; }
  /// How many were left out.
  int64_t others() const { return others_; }

 private:
  std::vector<Failure> failures_;
  int64_t others_ = 0;
};

/// Knows failures that come again however often workers are started: an error of ours in the
/// configuration at once, and numbers that diverge at the second time without a new step between
/// them, for a machine may err once.
class Repetition {
 public:
  /// Whether workers that failed so would fail so again; `step` as Progress::in_vain has it.
  /// Counts.
  bool expected(const std::vector<Failure>& failures, std::optional<int64_t> step);

 private:
  int diverged_ = 0;
  std::optional<int64_t> diverged_at_;  // the furthest step of those
};

/// Ends a job that does not get on: one that has failed kMost times in a row without coming to a
/// step that it had not reached.
class Progress {
 public:
  static constexpr size_t kMost = 3;

  /// A round has failed; `step` is what a worker of it began last (-1: none, nothing: its workers
  /// tell of no steps). Whether it is not to be started again.
  bool in_vain(std::optional<int64_t> step, const std::string& why);
  /// The rounds in vain and why each failed, in lines.
  std::string told() const;

  nlohmann::json to_json() const;
  static Progress from_json(const nlohmann::json& object);

 private:
  std::optional<int64_t> furthest_;
  std::vector<std::string> in_vain_;  // why each failed
};

/// Why a round has failed, in a line: the message of its root cause, else `otherwise`.
std::string cause_of(const std::vector<Failure>& failures, const std::string& otherwise);

}  // namespace lockstep::launch
