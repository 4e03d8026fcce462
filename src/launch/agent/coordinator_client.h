// Client of the coordinator: rendezvous with the agents of other nodes.
#pragma once

#include <memory>

#include "launch/agent/rendezvous.h"

namespace lockstep::launch {

/// Joins the coordinator at the plan's rendezvous endpoint, or hosts it if this is the endpoint's
/// node. Retries until the join timeout. Throws Error (environment) with address, interface and
/// reason if it is unreachable; Error (config) if the secret is wrong or the node's rank is taken.
std::unique_ptr<Rendezvous> make_coordinator_client(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
