// Members of a round and their order. The functions use no sockets.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::launch {

/// Introduction of an agent to the coordinator.
struct NodeInfo {
  int64_t id = 0;  // assigned by the coordinator in the order of joining
  std::string host, address;
  int64_t pid = 0;
  int workers = 1;
  int node_rank = -1;       // requested rank; -1: any
  int probe_port = 0;       // of its next round
  std::string probe_token;  // likewise
  int host_port = 0;   // port on which it would host the job if the coordinator is lost; 0: none
  bool hosts = false;  // hosts the coordinator

  /// Returns a name such as "n1 (10.0.0.1)".
  std::string name() const;
};

nlohmann::json to_json(const NodeInfo& node);
/// Throws Error (peer lost) if the object is invalid or a number is out of range.
NodeInfo node_from_json(const nlohmann::json& object);
/// Adopts the port and token of a node's next probe listener, with the same errors.
void take_probe(NodeInfo& node, const nlohmann::json& object);

/// Returns the standby coordinators of a round in order of precedence. The order is the same on
/// every node.
std::vector<NodeInfo> standbys(const std::vector<NodeInfo>& nodes);
/// Returns the number of standbys that must connect to one of them before it may restart workers.
/// It is a majority, so that two standbys cannot both restart workers.
int quorum(int standbys);

/// Orders the nodes of a round: by requested rank if every node has one, otherwise by (address,
/// pid, id).
void order_nodes(std::vector<NodeInfo>& nodes);

/// Returns the nodes that the node at `index` probes before workers start. These are all nodes, but
/// at most kMostTried: its successors and others at even distances, so that each node is probed
/// equally often. Probing all pairs would need a quadratic number of connections.
constexpr size_t kMostTried = 256;
std::vector<NodeInfo> tried_by(const std::vector<NodeInfo>& nodes, size_t index);

/// Conditions for the start of a round.
struct GatheringRules {
  int least = 1, most = 1;
  std::chrono::milliseconds last_call{30000}, join_timeout{600000};
};
enum class Gathering { kWait, kComplete, kGiveUp };
/// Decides whether the round can begin. `since_enough` is the time for which at least `least` nodes
/// have been ready. `since_begin` is the time since the coordinator began to gather nodes.
Gathering gathering(
    const GatheringRules& rules,
    int ready,
    std::chrono::milliseconds since_enough,
    std::chrono::milliseconds since_begin);

}  // namespace lockstep::launch
