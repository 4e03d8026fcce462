// Rendezvous interface: the agents agree on the members of each round and on its outcome.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {

/// Identity of the job: the same on every node and in every round.
struct JobIdentity {
  std::string id;            // drawn at random
  int64_t started = 0;       // seconds since 1970
  int first_world_size = 0;  // of the first round, for which the batch was configured
  static JobIdentity draw();
};

/// One run of all workers of the job, as this node sees it.
struct Round {
  int number = 0;    // counts every start of the workers
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
  AttemptEnd end = AttemptEnd::kSucceeded;  // of the job, with kEnd
  std::vector<Failure> failures;            // from all nodes, including the root cause
  int64_t other_failures = 0;               // failures omitted because there are too many
  std::string reason;                       // if no worker is the cause: "node b was lost: ..."
  int exit_code = 0;
};

/// Agent's side of the rendezvous. All calls are made on the thread of the guard's loop.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Blocks until this node takes part in a round. Returns nullopt if the job ended or a signal
  /// arrived first. Throws Error (environment, peer lost) if the nodes cannot connect.
  virtual std::optional<Round> next_round() = 0;
  /// Reason for which the other nodes want this node's workers to stop, if any.
  virtual Interruption interruption() const = 0;
  /// Announces to the other nodes that this node's workers are about to be stopped, and why.
  virtual void ending(const AttemptResult& result) = 0;
  /// Reports how this node's workers ended and returns the decision. Blocks until all nodes have
  /// reported.
  virtual Verdict conclude(const AttemptResult& result) = 0;
};

/// A single node without peers. The workers' store is hosted here on loopback.
std::unique_ptr<Rendezvous> make_single_node_rendezvous(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
