// The meeting place of a job's agents, hosted by one of them: who takes part, when workers start,
// that a failure anywhere stops them everywhere, and what comes next. It runs on a thread of its
// own.
//
// Agents and coordinator exchange JSON lines over TCP:
//   greeting  <- {lockstep, challenge, secret}   -> {join, nonce, proof, node}
//             <- {welcome, proof}, or {refused} and the end of the connection
//   a round   -> {ready}   <- {round, nodes, store, heritage}   -> {checked, problems}   <- {start}
//             <- {roster, heritage} for who is not in it
//   its end   -> {ending, end, failures}   <- {stop}   -> {ended, end, exit_code, failures, step}
//             <- {again} or {end}
//   another   -> {moved, term, job, command} from the host that follows   <- {moved} to all: they
//   go there always    {beat} each second, both ways
// Whoever says what does not belong to where it stands is cut off. Where there is a secret, every
// line after the greeting is sealed with a key that is drawn from it for this connection.
#pragma once

#include <memory>
#include <string>

#include "launch/agent/replicated_state.h"
#include "launch/plan/launch_plan.h"
#include "launch/system/network.h"

namespace lockstep::launch {

class Coordinator {
 public:
  /// Takes over a listening socket. `address` is where workers find the store of a round. An heir
  /// goes on from what was `before`, listens at the job's own endpoint as well where it can
  /// (`at_endpoint`), and sees to it that hosts of before do not go on beside it.
  Coordinator(
      const LaunchPlan& plan,
      Socket listener,
      std::string address,
      ReplicatedJobState before = {},
      Socket at_endpoint = {});
  /// Lets the last messages go out (bounded), and ends.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::launch
