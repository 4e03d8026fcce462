// Coordinator of a job, hosted by one of its agents. It selects the nodes of each round, starts the
// workers, stops all workers after a failure on any node, and decides whether the job restarts. It
// runs on its own thread.
//
// Agents and coordinator exchange JSON lines over TCP:
//   greeting  <- {lockstep, challenge, secret}   -> {join, nonce, proof, node}
//             <- {welcome, proof}, or {refused} and the end of the connection
//   a round   -> {ready, probe_port, probe_token}
//             <- {round, nodes, store, heritage}   -> {checked, problems}   <- {start}
//             <- {roster, heritage} to agents outside the round
//   its end   -> {ending, end, failures}   <- {stop}   -> {ended, end, exit_code, failures, step}
//             <- {again} or {end}
//   failover  -> {moved, term, job, command} from the new coordinator
//             <- {moved} to all agents, which reconnect there
//   always    {beat} each second, both ways
//
// A message that is not allowed in the connection's stage closes the connection. With a secret,
// every line after the greeting is sealed with a key derived for this connection.
#pragma once

#include <memory>
#include <string>

#include "launch/agent/replicated_state.h"
#include "launch/plan/launch_plan.h"
#include "launch/system/network.h"

namespace lockstep::launch {

class Coordinator {
 public:
  /// Takes ownership of a listening socket. `address` is the address of each round's store for
  /// workers. A standby coordinator continues from `before` and fences former coordinators. If
  /// possible, it also listens at the job's original endpoint (`at_endpoint`).
  Coordinator(
      const LaunchPlan& plan,
      Socket listener,
      std::string address,
      ReplicatedJobState before = {},
      Socket at_endpoint = {});
  /// Sends the last messages, for a limited time, and stops.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::launch
