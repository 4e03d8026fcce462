// Replicated job state: what every agent knows, so that any of them can become the coordinator.
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

/// Sent with each round and taken over by the next coordinator.
struct ReplicatedJobState {
  JobIdentity job;
  int rounds = 0;  // started so far
  Restarts restarts;
  Progress progress;
  std::vector<HostPlace> hosts;  // of the job until now; the last one hosts it
  int standbys = 0;              // of the last round, that may host the job after this host

  /// Number of earlier coordinators of the job.
  int term() const { return static_cast<int>(hosts.size()) - 1; }
};

nlohmann::json to_json(const ReplicatedJobState& replicated_state);
/// Throws Error (peer lost) if the object is invalid.
ReplicatedJobState replicated_state_from_json(const nlohmann::json& object);

/// "10.0.0.2" and a port in a message. Error (peer lost) as above.
nlohmann::json to_json(const HostPlace& place);
HostPlace place_from_json(const nlohmann::json& object);

}  // namespace lockstep::launch
