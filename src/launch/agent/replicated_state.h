// Job state that is replicated to every agent, so that a standby can become the coordinator.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/rendezvous.h"
#include "launch/workers/failure_list.h"
#include "launch/workers/restarts.h"

namespace lockstep::launch {

/// Endpoint of a coordinator.
struct HostPlace {
  std::string address;
  int port = 0;
};

/// Sent with each round. The next coordinator continues from it.
struct ReplicatedJobState {
  JobIdentity job;
  int rounds = 0;  // number of rounds started so far
  Restarts restarts;
  Progress progress;
  std::vector<HostPlace> hosts;  // coordinators of the job so far; the last one is the current one
  int standbys = 0;              // number of standby coordinators in the last round

  /// Returns the number of earlier coordinators of the job.
  int term() const { return static_cast<int>(hosts.size()) - 1; }
};

nlohmann::json to_json(const ReplicatedJobState& replicated_state);
/// Throws Error (peer lost) if the object is invalid.
ReplicatedJobState replicated_state_from_json(const nlohmann::json& object);

/// Converts an endpoint to and from JSON. place_from_json() throws Error (peer lost) if the object
/// is invalid.
nlohmann::json to_json(const HostPlace& place);
HostPlace place_from_json(const nlohmann::json& object);

}  // namespace lockstep::launch
