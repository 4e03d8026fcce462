// Meeting the agents of other nodes, through the coordinator that one of them hosts.
#pragma once

#include <memory>

#include "launch/agent/rendezvous.h"

namespace lockstep::launch {

/// Joins the coordinator at the plan's meeting point, or hosts it where this node is the one.
/// Retries until the join timeout. Error (environment) tells address, interface and reason where it
/// cannot be reached; Error (config) where the secret is wrong or the node's rank is taken.
std::unique_ptr<Rendezvous> make_coordinator_client(Guard& guard, const LaunchPlan& plan);

}  // namespace lockstep::launch
