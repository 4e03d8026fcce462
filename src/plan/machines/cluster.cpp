// Implements cluster descriptions and collective times.
#include "plan/machines/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

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

NodeGroup Cluster::bottleneck() const {
  NodeGroup result = slowest();
  const auto peer_rate = [&](const NodeGroup& group) {
    return group.peer_bandwidth * (group.link_latency > 0 ? 1 : physics.link_efficiency);
  };
  for (const NodeGroup& group : groups) {
    if (peer_rate(group) < peer_rate(result)) {
      result.peer_bandwidth = group.peer_bandwidth;
      result.link_latency = group.link_latency;
    }
    result.network_bandwidth = std::min(result.network_bandwidth, group.network_bandwidth);
    result.spread_seconds = std::max(result.spread_seconds, group.spread_seconds);
  }
  return result;
}

int Cluster::node_of(int rank) const {
  int nodes = 0;
  for (const NodeGroup& group : groups) {
    if (rank < group.devices()) {
      return nodes + rank / group.devices_per_node;
    }
    rank -= group.devices();
    nodes += group.nodes;
  }
  return nodes;
}

int Cluster::common_node_size() const {
  int common = 0;
  for (const NodeGroup& group : groups) {
    common = std::gcd(common, group.devices_per_node);
  }
  return common;
}

bool Cluster::unequal() const {
  const auto figures = [](const NodeGroup& group) {
    const Device& device = group.device;
    return std::array{
        device.flops16,
        device.flops32,
        device.memory_bytes,
        device.memory_bandwidth,
        device.efficiency.matrix16,
        group.peer_bandwidth,
        group.network_bandwidth};
  };
  return std::any_of(groups.begin(), groups.end(), [&](const NodeGroup& group) {
    return figures(group) != figures(groups.front());
  });
}

Cluster uniform_cluster(const Device& device, int devices) {
  NodeGroup group;
  group.name = "node";
  group.device = device;
  group.peer_bandwidth = device.peer_bandwidth;
  group.network_bandwidth = device.node_network;
  Cluster cluster{.groups = {}, .physics = calibration().physics};
  const auto add = [&](int nodes, int devices_per_node) {
    if (nodes > 0 && devices_per_node > 0) {
      group.nodes = nodes;
      group.devices_per_node = devices_per_node;
      cluster.groups.push_back(group);
    }
  };
  add(devices / device.devices_per_node, device.devices_per_node);
  add(1, devices % device.devices_per_node);
  return cluster;
}

Cluster at_roofline(Cluster cluster) {
  for (NodeGroup& group : cluster.groups) {
    Device& device = group.device;
    device.measured = true;  // rates are used directly, without waves of tiles
    device.short16 = device.short32 = {};
    device.kernel_seconds = device.dropout_seconds = 0;
    device.efficiency =
        device.efficiency32 = {.matrix16 = 1, .matrix8 = 1, .attention = 1, .memory = 1};
    device.attention_rate = 1;
    group.spread_seconds = group.link_latency = 0;
  }
  Physics& physics = cluster.physics;
  physics.link_efficiency = physics.network_efficiency = physics.early_libraries = 1;
  physics.block_scaled = 1;
  physics.link_latency = physics.network_latency = physics.step_seconds = 0;
  physics.host_seconds = physics.message_seconds = physics.contention = physics.straggler = 0;
  return cluster;
}

namespace {

// Returns the fraction of a device's intra-node links that a group of `members` can use. Without a
// switch, two devices can use only their direct links: one of the six of a V100's cube mesh, or
// four within a quad.
double link_share(const NodeGroup& node, double members) {
  if (!node.device.direct_links || members > 4) {
    return 1;
  }
  return members > 2 ? 4.0 / 6 : 1.0 / 6;
}

struct Path {
  double bandwidth = 0;  // bytes/s that the ring moves through each member
  double latency = 0;    // latency of one pass around the ring
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
    // All members in a node share its ports with other groups of the same axis. Each member
    // therefore gets the bandwidth of one port.
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
  // Always a ring, because every member needs the shards of all other members.
  return bytes * (group.members - 1) / group.members / path.bandwidth + path.latency;
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

double all_to_all_seconds(
    const Cluster& cluster, const NodeGroup& node, CollectiveGroup group, double bytes) {
  if (group.members <= 1) {
    return 0;
  }
  const double per_node = std::min(group.per_node, group.members);
  const Path within = path_of(cluster, node, {per_node, per_node});
  const double inside = bytes * (per_node - 1) / group.members / within.bandwidth;
  const double network = node.network_bandwidth * cluster.physics.network_efficiency;
  const double outside = group.members > per_node
                             ? bytes * (group.members - per_node) / group.members / network +
                                   cluster.physics.network_latency
                             : 0;
  // Both networks are used concurrently.
  return std::max(inside + (per_node > 1 ? within.latency / (per_node - 1) : 0), outside);
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
