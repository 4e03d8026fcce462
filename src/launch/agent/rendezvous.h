// How the agents of a job agree: on who takes part in a round of workers, and on how it ended.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {

/// The job that all rounds belong to: the same on every node and in every round.
struct JobIdentity {
  std::string id;            // drawn at random
  int64_t started = 0;       // seconds since 1970
  int first_world_size = 0;  // of the first round: the ranks that a batch was configured for
  static JobIdentity draw();
};

/// One run of all the workers of the job, as this node sees it.
struct Round {
  int number = 0;    // counts every start of the workers
  int restarts = 0;  // those that followed a failure
  int term = 0;      // how many hosts the job had before this one
  JobIdentity job;
  int node = 0, nodes = 1;
  int first_rank = 0, world_size = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
};

/// What comes after a round.
struct Verdict {
  enum class Next { kAgain, kEnd } next = Next::kEnd;
  AttemptEnd end = AttemptEnd::kSucceeded;  // of the job, with kEnd
  std::vector<Failure> failures;            // of every node, the root cause among them
  int64_t other_failures = 0;               // that are not told, for there are too many
  std::string reason;                       // where no worker is to blame: "node b was lost: ..."
  int exit_code = 0;
};

/// One agent's side of the meeting. All calls are on the thread of the guard's loop.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Blocks until this node takes part in a round. Nothing where the job ended, or a signal came,
  /// before. Error (environment, peer lost) where the nodes cannot meet.
  virtual std::optional<Round> next_round() = 0;
  /// Whether the others want this node's workers to end.
  virtual Interruption interruption() const = 0;
  /// Tells the others that this node's workers are about to be ended, and why.
  virtual void ending(const AttemptResult& result) = 0;
  /// Tells the others how the workers of this node ended, and hears what is next. Blocks until all
  /// have told.
  virtual Verdict conclude(const AttemptResult& result) = 0;
};

/// One node alone: nobody to meet. The workers' store is hosted here, on loopback.
std::unique_ptr<Rendezvous> make_single_node_rendezvous(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
