// Job state that is replicated to every agent, so that any agent can become the coordinator.
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

/// Sent with each round and adopted by the next coordinator.
struct ReplicatedJobState {
  JobIdentity job;
  int rounds = 0;  // started so far
  Restarts restarts;
  Progress progress;
  std::vector<HostPlace> hosts;  // of the job until now; the last one hosts it
  int standbys = 0;              // number of standby coordinators in the last round

  /// Number of earlier coordinators of the job.
  int term() const { return static_cast<int>(hosts.size()) - 1; }
};

nlohmann::json to_json(const ReplicatedJobState& replicated_state);
/// Throws Error (peer lost) if the object is invalid.
ReplicatedJobState replicated_state_from_json(const nlohmann::json& object);

/// Address and port of a coordinator in a message. Throws Error (peer lost) if it is invalid.
nlohmann::json to_json(const HostPlace& place);
HostPlace place_from_json(const nlohmann::json& object);

}  // namespace lockstep::launch
