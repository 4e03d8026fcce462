// Who takes part in a round, and with which ranks: pure rules, no sockets.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::launch {

/// An agent as it introduces itself.
struct NodeInfo {
  int64_t id = 0;  // given by the coordinator, in the order of joining
  std::string host, address;
  int64_t pid = 0;
  int workers = 1;
  int node_rank = -1;  // wanted; -1: any
  int probe_port = 0;
  std::string probe_token;
  int host_port = 0;   // where it would host the job, should the host be lost; 0: nowhere
  bool hosts = false;  // the job, now

  /// "n1 (10.0.0.1)".
  std::string name() const;
};

nlohmann::json to_json(const NodeInfo& node);
/// Error (peer lost) where the object is not one, or a number is out of its range.
NodeInfo node_from_json(const nlohmann::json& object);

/// Of the nodes of a round, in its order, those that may host the job after the one that does: the
/// same on every node.
std::vector<NodeInfo> standbys(const std::vector<NodeInfo>& nodes);
/// How many of the heirs have to meet at one of them before workers start again: more than half, so
/// that no two of them can both start some.
int quorum(int standbys);

/// Puts the nodes of a round in order: by wanted rank where every node has one, else by (address,
/// pid, id).
void order_nodes(std::vector<NodeInfo>& nodes);

/// Which of the nodes of a round the one at `index` tries to reach before workers start: all, and
/// of more than kMostTried those that follow it and others at even distances, so that each is tried
/// by as many. All at once would be the square of the nodes in connections.
constexpr size_t kMostTried = 256;
std::vector<NodeInfo> tried_by(const std::vector<NodeInfo>& nodes, size_t index);

/// When a round of `ready` nodes may begin.
struct GatheringRules {
  int least = 1, most = 1;
  std::chrono::milliseconds last_call{30000}, join_timeout{600000};
};
enum class Gathering { kWait, kComplete, kGiveUp };
/// `since_enough`: for how long at least `least` were ready; `since_begin`: for how long the round
/// is awaited.
Gathering gathering(
    const GatheringRules& rules,
    int ready,
    std::chrono::milliseconds since_enough,
    std::chrono::milliseconds since_begin);

}  // namespace lockstep::launch
