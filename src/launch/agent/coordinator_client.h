// Client of the coordinator: rendezvous with the agents of other nodes.
#pragma once

#include <memory>

#include "launch/agent/rendezvous.h"

namespace lockstep::launch {

/// Joins the coordinator at the plan's rendezvous endpoint, or hosts it if the endpoint is on this
/// node. Retries until the join timeout. Throws Error (environment) with address, interface and
/// reason if the endpoint cannot be reached, and Error (config) if the secret is wrong or another
/// node has the same rank.
std::unique_ptr<Rendezvous> make_coordinator_client(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
