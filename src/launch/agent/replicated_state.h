// What all agents of a job know of it, so that another of them can host it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launch/agent/rendezvous.h"
#include "launch/workers/failure_list.h"
#include "launch/workers/restarts.h"

namespace lockstep::launch {

/// Where a coordinator listens.
struct HostPlace {
  std::string address;
  int port = 0;
};

/// Told with each round, and taken over by the next host.
struct ReplicatedJobState {
  JobIdentity job;
  int rounds = 0;  // begun so far
  Restarts restarts;
  Progress progress;
  std::vector<HostPlace> hosts;  // of the job until now; the last one hosts it
  int standbys = 0;              // of the last round, that may host the job after this host

  /// How many hosts the job had before this one.
  int term() const { return static_cast<int>(hosts.size()) - 1; }
};

nlohmann::json to_json(const ReplicatedJobState& replicated_state);
/// Error (peer lost) where the object is none.
ReplicatedJobState replicated_state_from_json(const nlohmann::json& object);

/// "10.0.0.2" and a port in a message. Error (peer lost) as above.
nlohmann::json to_json(const HostPlace& place);
HostPlace place_from_json(const nlohmann::json& object);

}  // namespace lockstep::launch
