// Orders the nodes of a round.
#include "launch/agent/membership.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_number.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

int64_t number_at(const nlohmann::json& object, const char* key, int64_t least, int64_t most) {
  const int64_t value = integer_of(object.at(key));
  if (value < least || value > most) {
    throw Error(
        ErrorKind::kPeerLost, fmt::format("invalid introduction of a node: {} is {}", key, value));
  }
  return value;
}

// Every node prints the names, so remove control characters.
std::string name_at(const nlohmann::json& object, const char* key) {
  constexpr size_t kLongestName = 255;
  return printable(object.at(key).get<std::string>().substr(0, kLongestName));
}

}  // namespace

std::string NodeInfo::name() const {
  return fmt::format("{} ({})", host, address);
}

nlohmann::json to_json(const NodeInfo& node) {
  return {
      {"id", node.id},
      {"host", node.host},
      {"address", node.address},
      {"pid", node.pid},
      {"workers", node.workers},
      {"node_rank", node.node_rank},
      {"probe_port", node.probe_port},
      {"probe_token", node.probe_token},
      {"host_port", node.host_port},
      {"hosts", node.hosts}};
}

NodeInfo node_from_json(const nlohmann::json& object) {
  try {
    NodeInfo node;
    node.id = integer_of(object.at("id"));
    node.host = name_at(object, "host");
    node.address = name_at(object, "address");
    node.pid = integer_of(object.at("pid"));
    node.workers = static_cast<int>(number_at(object, "workers", 1, 65536));
    node.node_rank = static_cast<int>(number_at(object, "node_rank", -1, 100000));
    take_probe(node, object);
    node.host_port = static_cast<int>(number_at(object, "host_port", 0, 65535));
    node.hosts = object.at("hosts").get<bool>();
    return node;
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        ErrorKind::kPeerLost, fmt::format("invalid introduction of a node: {}", error.what()));
  }
}

void take_probe(NodeInfo& node, const nlohmann::json& object) try {
  node.probe_port = static_cast<int>(number_at(object, "probe_port", 1, 65535));
  node.probe_token = object.at("probe_token").get<std::string>();
} catch (const nlohmann::json::exception& error) {
  throw Error(ErrorKind::kPeerLost, fmt::format("invalid probe of a node: {}", error.what()));
}

std::vector<NodeInfo> standbys(const std::vector<NodeInfo>& nodes) {
  std::vector<NodeInfo> result;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(result), [](const NodeInfo& node) {
    return !node.hosts && node.host_port != 0;
  });
  return result;
}

int quorum(int standbys) {
  return standbys / 2 + 1;
}

void order_nodes(std::vector<NodeInfo>& nodes) {
  const bool ranked = std::all_of(
      nodes.begin(), nodes.end(), [](const NodeInfo& node) { return node.node_rank >= 0; });
  std::sort(nodes.begin(), nodes.end(), [&](const NodeInfo& a, const NodeInfo& b) {
    const auto key = [&](const NodeInfo& node) {
      return std::tie(node.address, node.pid, node.id);
    };
    return ranked ? a.node_rank < b.node_rank : key(a) < key(b);
  });
}

std::vector<NodeInfo> tried_by(const std::vector<NodeInfo>& nodes, size_t index) {
  const size_t others = nodes.empty() ? 0 : nodes.size() - 1;
  const size_t count = std::min(others, kMostTried);
  const size_t near = count < others ? count / 2 : count;
  std::vector<NodeInfo> tried;
  for (size_t i = 0; i < count; ++i) {
    const size_t far = i < near ? 0 : (i - near) * (others - near) / (count - near);
    tried.push_back(nodes[(index + 1 + std::min(i, near) + far) % nodes.size()]);
  }
  return tried;
}

Gathering gathering(
    const GatheringRules& rules,
    int ready,
    std::chrono::milliseconds since_enough,
    std::chrono::milliseconds since_begin) {
  if (ready >= rules.most || (ready >= rules.least && since_enough >= rules.last_call)) {
    return Gathering::kComplete;
  }
  return ready < rules.least && since_begin >= rules.join_timeout ? Gathering::kGiveUp
                                                                  : Gathering::kWait;
}

}  // namespace lockstep::launch
