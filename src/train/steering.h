// Control of a running job through the socket in its folder (lockstep ctl). The ranks agree on each
// command, so that all execute it between the same two steps. Learning rate changes are saved in
// checkpoints.
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

/// Commands that all ranks execute at a step.
struct Acts {
  bool save = false, stop = false, evaluate = false;
  std::optional<int> log_level{};  // number of a LogLevel
  std::optional<double> learning_rate{};
  int64_t traced_steps = 0;
  int64_t logging_steps = 0;  // new interval; 0: unchanged

  /// Encoding for the message that synchronizes the ranks.
  static constexpr int64_t kNumbers = 6;
  std::array<double, kNumbers> numbers() const;
  static Acts from_numbers(std::span<const double, kNumbers> numbers);
};

/// Listens on rank 0. On the other ranks, and if the socket cannot be created, there are no
/// commands.
class Steering {
 public:
  /// `job` and `rank_context` must outlive the object. If the folder does not support sockets,
  /// warns; the run continues.
  Steering(Job& job, const RankContext& rank_context);

  /// Returns the commands that this rank received since the last call. The last of several learning
  /// rates wins.
  Acts take();
  /// Applies the commands that take effect with this step: log level, logging interval and learning
  /// rate. Also repeats learning rate changes from before a resume when their step is reached.
  /// Every rank must call with the synchronized commands, before the step reads its learning rate.
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

/// Continues the schedule as if the configuration had this learning rate. Every rank must call.
void set_learning_rate(Job& job, double learning_rate);

/// Save and restore the learning rate changes in a checkpoint. Restoring applies the last change,
/// unless the configured learning rate is different from the one at that time; then the new
/// configuration takes precedence, and rank 0 warns. Call before the schedule's state is restored.
nlohmann::ordered_json acts_json(const Job& job);
void restore_acts(Job& job, const nlohmann::json& acts, const RankContext& rank_context);

/// Reads the learning rate changes after the resumed checkpoint from the run's record. They are
/// repeated at their steps, so that the resumed run matches the original one. Every rank must call.
void read_acts_to_come(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
