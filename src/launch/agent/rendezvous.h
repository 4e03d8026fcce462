// Interface of the rendezvous, in which the agents agree on the members and the outcome of each
// round.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {

/// Identity of the job. It is the same on every node and in every round.
struct JobIdentity {
  std::string id;            // drawn at random
  int64_t started = 0;       // seconds since 1970
  int first_world_size = 0;  // of the first round, for which the batch size was configured
  static JobIdentity draw();
};

/// One run of all workers of the job, as seen from this node.
struct Round {
  int number = 0;    // number of earlier starts of the workers
  int restarts = 0;  // restarts after a failure
  int term = 0;      // number of earlier coordinators
  JobIdentity job;
  int node = 0, nodes = 1;
  int first_rank = 0, world_size = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
};

/// Decision after a round.
struct Verdict {
  enum class Next { kAgain, kEnd } next = Next::kEnd;
  AttemptEnd end = AttemptEnd::kSucceeded;  // of the job, if `next` is kEnd
  std::vector<Failure> failures;            // from all nodes, including the root cause
  int64_t other_failures = 0;               // failures omitted because there are too many
  std::string reason;  // if no worker is the cause, for example "node b was lost: ..."
  int exit_code = 0;
};

/// Agent's side of the rendezvous. All functions must be called on the thread of the guard's loop.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Blocks until this node takes part in a round. Returns nullopt if the job ends or a signal
  /// arrives first. Throws Error (environment, peer lost) if the nodes cannot connect.
  virtual std::optional<Round> next_round() = 0;
  /// Returns why other nodes want this node's workers to stop, if they do.
  virtual Interruption interruption() const = 0;
  /// Announces to the other nodes that this node's workers are about to be stopped, with the
  /// reason.
  virtual void ending(const AttemptResult& result) = 0;
  /// Reports how this node's workers ended and returns the decision. Blocks until all nodes have
  /// reported.
  virtual Verdict conclude(const AttemptResult& result) = 0;
};

/// Creates the rendezvous of a single node. Hosts the workers' store on loopback.
std::unique_ptr<Rendezvous> make_single_node_rendezvous(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
