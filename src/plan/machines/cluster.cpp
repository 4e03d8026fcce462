#include "plan/machines/cluster.h"

#include <algorithm>
#include <cmath>

namespace lockstep::plan {

int Cluster::devices() const {
  int sum = 0;
  for (const NodeGroup& group : groups) {
    sum += group.devices();
  }
  return sum;
}

const NodeGroup& Cluster::group_of(int rank) const {
  for (const NodeGroup& group : groups) {
    if (rank < group.devices()) {
      return group;
    }
    rank -= group.devices();
  }
  return groups.back();
}

const NodeGroup& Cluster::slowest() const {
  return slowest_of(0, devices());
}

const NodeGroup& Cluster::slowest_of(int first, int count) const {
  const auto rate = [](const NodeGroup& group) {
    return group.device.flops16 * group.device.efficiency.matrix16;
  };
  const NodeGroup* slowest = &group_of(first);
  int begin = 0;
  for (const NodeGroup& group : groups) {
    const bool has_some = begin < first + count && begin + group.devices() > first;
    if (has_some && rate(group) < rate(*slowest)) {
      slowest = &group;
    }
    begin += group.devices();
  }
  return *slowest;
}

Cluster uniform_cluster(const Device& device, int devices) {
  NodeGroup group;
  group.name = "node";
  group.device = device;
  group.devices_per_node = std::min(device.devices_per_node, devices);
  group.nodes = (devices + group.devices_per_node - 1) / group.devices_per_node;
  group.peer_bandwidth = device.peer_bandwidth;
  group.network_bandwidth = device.node_network;
  return {.groups = {group}, .physics = calibration().physics};
}

namespace {

// Of a device's links within the node, those that a group of `members` can use. Without a switch a
// pair has but the links between the two: one of the six of a V100's cube mesh, four within a quad.
double link_share(const NodeGroup& node, double members) {
  if (!node.device.direct_links || members > 4) {
    return 1;
  }
  return members > 2 ? 4.0 / 6 : 1.0 / 6;
}

struct Path {
  double bandwidth = 0;  // bytes/s at which the group's ring moves data through each member
  double latency = 0;    // of a whole turn of the ring
  double tree_latency = 0;
};

Path path_of(const Cluster& cluster, const NodeGroup& node, CollectiveGroup group) {
  const Physics& physics = cluster.physics;
  const bool measured = node.link_latency > 0;
  const double latency = measured ? node.link_latency : physics.link_latency;
  const double inside = node.peer_bandwidth * (measured ? 1 : physics.link_efficiency) *
                        link_share(node, std::min(group.members, group.per_node));
  Path path;
  path.bandwidth = inside;
  const double nodes = std::ceil(group.members / std::max(1.0, group.per_node));
  if (nodes > 1) {
    // The members of a node share its ports with the other groups of the same kind: each has its
    // own port's worth.
    const double ports = group.per_node * node.network_bandwidth * physics.network_efficiency;
    path.bandwidth = group.per_node > 1 ? std::min(inside, ports) : ports;
    path.latency = (nodes - 1) * physics.network_latency + (group.members - nodes) * latency;
    path.tree_latency =
        2 * std::log2(nodes) * physics.network_latency + (group.per_node - 1) * latency;
  } else {
    path.latency = (group.members - 1) * latency;
    path.tree_latency = 2 * std::log2(std::max(2.0, group.members)) * latency;
  }
  return path;
}

}  // namespace

double all_gather_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes) {
  if (group.members <= 1) {
    return 0;
  }
  const Path path = path_of(cluster, node, group);
  return bytes * (group.members - 1) / group.members / path.bandwidth +
         std::min(path.latency, path.tree_latency * 2);
}

double all_reduce_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes) {
  if (group.members <= 1) {
    return 0;
  }
  const Path path = path_of(cluster, node, group);
  const double wire = 2 * bytes * (group.members - 1) / group.members / path.bandwidth;
  const double ring = wire + 2 * path.latency;
  const double tree = wire * 1.15 + path.tree_latency;
  return std::min(ring, tree);
}

double message_seconds(
    const Cluster& cluster, const NodeGroup& node, bool within_node, double bytes) {
  const Physics& physics = cluster.physics;
  const bool measured = node.link_latency > 0;
  return within_node ? bytes / (node.peer_bandwidth * (measured ? 1 : physics.link_efficiency) *
                                link_share(node, 2)) +
                           (measured ? node.link_latency : physics.link_latency)
                     : bytes / (node.network_bandwidth * physics.network_efficiency) +
                           physics.network_latency;
}

}  // namespace lockstep::plan
