// A hand on a run: what its user asks of it through its folder's socket (lockstep ctl), agreed over
// the ranks so that all act between the same two steps, and what of it a checkpoint keeps.
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

/// What all ranks do at this step.
struct Acts {
  bool save = false, stop = false, evaluate = false;
  std::optional<int> log_level{};  // LogLevel's number
  std::optional<double> learning_rate{};
  int64_t traced_steps = 0;
  int64_t logging_steps = 0;  // from now on; 0: as it is

  /// For the message in which the ranks agree.
  static constexpr int64_t kNumbers = 6;
  std::array<double, kNumbers> numbers() const;
  static Acts from_numbers(std::span<const double, kNumbers> numbers);
};

/// On rank 0 it listens; on the others, and where the socket cannot be had, it asks for nothing.
class Steering {
 public:
  /// `world` must outlive it, as `job` must. A folder that can hold no socket is told of, and the
  /// run goes on.
  Steering(Job& job, const RankContext& rank_context);

  /// What this rank was asked for since the last call. Of several learning rates the last.
  Acts take();
  /// Sets what takes effect with this step: the log's level, how often a line is logged, the
  /// learning rate (which was acted before, too, where a resume comes to its step). Every rank must
  /// call, with what was agreed, before the step's learning rate is taken.
  void begin_step(const Acts& acts);
  /// Answers who asked for what is done by the step's end. `saved`: a checkpoint of the step.
  void end_step(bool saved);
  /// What `lockstep ctl RUN status` answers from now on.
  void publish();

 private:
  void record(const Acts& acts);

  Job& job_;
  const RankContext& rank_context_;
  std::unique_ptr<watch::ControlServer> server_;
  std::vector<watch::Asked> asked_;  // taken, and not answered
};

/// The schedule goes on as if the configuration had had this learning rate. Every rank must call.
void set_learning_rate(Job& job, double learning_rate);

/// What a checkpoint keeps of the acts: a list; and takes it back, with the learning rate that was
/// set last, unless the configuration has another one than then: it goes before, with a warning of
/// rank 0. To be called before the schedule's own state is read.
nlohmann::ordered_json acts_json(const Job& job);
void restore_acts(Job& job, const nlohmann::json& acts, const RankContext& rank_context);

/// Acts after the checkpoint that is resumed, as the run's record tells them: they are acted again
/// at their steps, so that the run is the one that was steered. Every rank must call.
void read_acts_to_come(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
