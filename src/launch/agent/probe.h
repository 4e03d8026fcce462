// Checks connections between nodes. Each node runs a listener that identifies itself, and probes
// other nodes concurrently.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "launch/agent/membership.h"
#include "launch/system/network.h"

namespace lockstep::launch {

/// Answers every connection with its token on its own thread, which reveals a node that is mistaken
/// for another (two machines with one address). It is open from the time when a node is ready for a
/// round until the round's workers start, and each has another token.
class ProbeListener {
 public:
  /// If `address` is empty, listens on all addresses.
  explicit ProbeListener(const std::string& address);
  ~ProbeListener();
  ProbeListener(const ProbeListener&) = delete;
  ProbeListener& operator=(const ProbeListener&) = delete;
  int port() const { return port_; }
  const std::string& token() const { return token_; }

 private:
  void serve();
  Socket listener_;
  int port_ = 0, stop_ = -1;
  std::string token_;
  std::thread thread_;
};

/// Probes all `others` concurrently from `self`. Returns a line for each unreachable node with
/// direction, address, interface and reason. Blocks for at most `timeout`.
std::vector<std::string> probe_nodes(
    const NodeInfo& self, const std::vector<NodeInfo>& others, std::chrono::milliseconds timeout);

/// Returns an empty string if the job's store answers, otherwise the reason.
std::string probe_store(
    const NodeInfo& self, const std::string& address, int port, std::chrono::milliseconds timeout);

}  // namespace lockstep::launch
