// Cluster description: nodes with equal or different devices, and the links within and between
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

/// Group of identical nodes.
struct NodeGroup {
  std::string name;  // "node", or the name in the file
  int nodes = 1;
  int devices_per_node = 8;
  Device device;
  double peer_bandwidth = 0;     // bytes/s per device and direction within the node
  double network_bandwidth = 0;  // bytes/s per device and direction to other nodes
  double link_latency = 0;  // measured link latency within the node in seconds; 0: use the fitted
                            // efficiency and latency

  double spread_seconds = 0;  // for measured devices; after computing for t, they wait sqrt(spread
                              // x t) for the slowest device

  /// Returns the time that devices wait for the slowest device after computing for `computed`
  /// seconds.
  double wait_seconds(double computed) const { return std::sqrt(spread_seconds * computed); }
  int devices() const { return nodes * devices_per_node; }
};

struct Cluster {
  std::vector<NodeGroup> groups;
  Physics physics;

  int devices() const;
  /// Returns the group of a rank; ranks are numbered across the groups.
  const NodeGroup& group_of(int rank) const;
  /// Returns the group with the slowest 16-bit products, which limits an even split.
  const NodeGroup& slowest() const;
  /// Variant limited to the groups of ranks [first, first + count).
  const NodeGroup& slowest_of(int first, int count) const;
  /// Returns a group that combines the slowest devices and the slowest links of all groups. It
  /// limits collectives over all ranks.
  NodeGroup bottleneck() const;
  /// Returns the node of a rank; nodes are numbered across the groups.
  int node_of(int rank) const;
  /// Returns the largest number that divides the device count of every node. Groups of this size
  /// never span nodes.
  int common_node_size() const;
  /// Returns true if devices or links differ between groups. Does not compare node sizes.
  bool unequal() const;
};

/// Returns a cluster of `devices` devices of one kind in nodes of the usual size. The last node
/// contains the remainder.
Cluster uniform_cluster(const Device& device, int devices);

/// Returns the cluster with ideal efficiency: products at peak rate, kernels at memory bandwidth,
/// messages at link bandwidth, no stragglers. Its step times are lower bounds.
Cluster at_roofline(Cluster cluster);

/// Reads a cluster file (keys: docs/plan.md). Throws Error (config) with all problems: unknown keys
/// (with the nearest key), invalid values, unknown devices.
Cluster parse_cluster(std::string_view yaml, const std::string& source);
Cluster read_cluster(const std::filesystem::path& path);

/// Group of a collective with `members` ranks, `per_node` of them in each node. In the functions
/// below, `bytes` is the size of the whole tensor that is gathered, scattered or reduced. They
/// model rings over all network ports of a node (Thakur et al., 2005; NCCL's bus bandwidth) and,
/// for latency-limited messages, trees over nodes with chains within them.
struct CollectiveGroup {
  double members = 1;
  double per_node = 1;
};
double all_gather_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
double all_reduce_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
/// Returns the time of an all-to-all in which each member sends an equal share of its `bytes` to
/// every other member.
double all_to_all_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes);
/// Returns the time of a point-to-point message of `bytes`.
double message_seconds(
    const Cluster& cluster, const NodeGroup& node, bool within_node, double bytes);

}  // namespace lockstep::plan
