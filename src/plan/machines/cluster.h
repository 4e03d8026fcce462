// The devices that a job has: nodes of equal or unequal devices, and the links within and between
// them.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plan/machines/calibration.h"
#include "plan/machines/device.h"

namespace lockstep::plan {

/// Nodes that are alike.
struct NodeGroup {
  std::string name;  // "node", or as the file has it
  int nodes = 1;
  int devices_per_node = 8;
  Device device;
  double peer_bandwidth = 0;     // bytes/s one way for each device, within the node
  double network_bandwidth = 0;  // bytes/s one way for each device, to other nodes
  double link_latency =
      0;  // of a measured link within the node, s; 0: the physics' share and latency

  double spread_seconds =
      0;  // of measured devices: those that compute for t wait for the slowest sqrt(spread x t)

  /// How long devices that have computed for so long wait for the slowest of them.
  double wait_seconds(double computed) const { return std::sqrt(spread_seconds * computed); }
  int devices() const { return nodes * devices_per_node; }
};

struct Cluster {
  std::vector<NodeGroup> groups;
  Physics physics;

  int devices() const;
  /// The group that rank `rank` is in, ranks being numbered through the groups.
  const NodeGroup& group_of(int rank) const;
  /// The group with the slowest 16-bit products: what an even split waits for.
  const NodeGroup& slowest() const;
  /// The same of the groups that ranks [first, first + count) are in.
  const NodeGroup& slowest_of(int first, int count) const;
  /// The slowest group with the slowest links of all: what collectives over all ranks wait for.
  NodeGroup bottleneck() const;
  /// The node that a rank is in, nodes being numbered through the groups.
  int node_of(int rank) const;
  /// The largest number of devices that divides every node: groups of so many never cross nodes.
  int common_node_size() const;
  /// Whether some devices or links differ from others; nodes may still have different sizes.
  bool unequal() const;
};

/// `devices` devices of one kind, in its usual nodes; the last one holds what is left over.
Cluster uniform_cluster(const Device& device, int devices);

/// The same with kernels that reach the peak of products or the memory's bandwidth, messages that
/// reach the links', and nothing that waits for the slowest: what a plan's step is bounded by.
Cluster at_roofline(Cluster cluster);

/// Reads a cluster file (docs/plan.md has its keys). Throws (config) with everything that is wrong:
/// unknown keys with the nearest one, figures that cannot be, devices that are not in the library.
Cluster parse_cluster(std::string_view yaml, const std::string& source);
Cluster read_cluster(const std::filesystem::path& path);

/// The time of collectives over `members` ranks of which `per_node` are in each node. `bytes` is
/// the whole tensor: what is gathered, scattered or reduced. Rings over all network ports of a node
/// (Thakur et al., 2005; NCCL's figures of bus bandwidth); trees over nodes, chains within
/// them, where the message is so small that latency decides.
struct CollectiveGroup {
  double members = 1;
  double per_node = 1;
};
double all_gather_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
double all_reduce_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
/// Each member sends every other one an equal part of its `bytes`.
double all_to_all_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
/// Of `bytes` from one rank to another.
double message_seconds(
    const Cluster& cluster, const NodeGroup& node, bool within_node, double bytes);

}  // namespace lockstep::plan
