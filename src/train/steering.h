// Controls a running job through the socket in its folder (lockstep ctl). The ranks agree on each
// command, so that all of them execute it between the same two steps. Changes of the learning rate
// are saved in checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "train/job.h"
#include "watch/control/server.h"

namespace lockstep::train {

/// Commands that all ranks execute in the same step.
struct Acts {
  bool save = false, stop = false, evaluate = false;
  std::optional<int> log_level{};  // number of a LogLevel
  std::optional<double> learning_rate{};
  int64_t traced_steps = 0;
  int64_t logging_steps = 0;  // new interval; 0: unchanged

  /// Encoding as numbers, for the message with which the ranks agree.
  static constexpr int64_t kNumbers = 6;
  std::array<double, kNumbers> numbers() const;
  static Acts from_numbers(std::span<const double, kNumbers> numbers);
};

/// Receives commands on rank 0. On the other ranks, or if the socket could not be created, there
/// are never any commands.
class Steering {
 public:
  /// Creates the socket on rank 0. If the folder does not support sockets, logs a warning, and the
  /// run continues. `job` and `rank_context` must outlive the object.
  Steering(Job& job, const RankContext& rank_context);

  /// Returns the commands that this rank received since the last call. If the learning rate was set
  /// several times, the last value is returned.
  Acts take();
  /// Applies those of the agreed commands that take effect in this step: log level, logging
  /// interval and learning rate. Also repeats changes of the learning rate that a resumed run had
  /// made at this step. Must be called on every rank with the same commands, before the step reads
  /// its learning rate.
  void begin_step(const Acts& acts);
  /// Replies to the commands that are complete at the end of the step. `saved` is true if the step
  /// saved a checkpoint; if it does so in the background, end_save() replies to requests to save.
  /// `evaluated` is the line about its evaluation.
  void end_step(bool saved, bool in_background, const std::string& evaluated = "");
  /// Replies to requests to save after the checkpoint of step `step` is committed.
  void end_save(int64_t step);
  /// Updates the reply of `lockstep ctl RUN status`.
  void publish();

 private:
  void record(const Acts& acts);

  Job& job_;
  const RankContext& rank_context_;
  std::unique_ptr<watch::ControlServer> server_;
  std::vector<watch::Asked> asked_;   // received, not yet answered
  std::vector<watch::Asked> saving_;  // wait for the save in the background
};

/// Continues the schedule as if the configuration had this learning rate. Must be called on every
/// rank.
void set_learning_rate(Job& job, double learning_rate);

/// Save and restore the changes of the learning rate in a checkpoint. restore_acts() applies the
/// last change, unless the configured learning rate has changed since then. In this case the new
/// configuration takes precedence, and rank 0 logs a warning. Must be called before the schedule's
/// state is restored.
nlohmann::ordered_json acts_json(const Job& job);
void restore_acts(Job& job, const nlohmann::json& acts, const RankContext& rank_context);

/// Reads from the run's record the changes of the learning rate that were made after the checkpoint
/// being resumed. They are repeated at the same steps, so that the resumed run matches the original
/// one. Must be called on every rank.
void read_acts_to_come(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
