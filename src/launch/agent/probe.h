// Whether every node reaches every other: a listener that says who it is, and a look at all the
// others at once.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "launch/agent/membership.h"
#include "launch/system/network.h"

namespace lockstep::launch {

/// Answers every connection with its token, on a thread of its own, so that a node that is mistaken
/// for another (two machines with one address) is found out.
class ProbeListener {
 public:
  /// `address`: empty for all.
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

/// Tries all of `others` at once from `self` and returns a line for each that is not reached:
/// direction, address, interface and reason. Blocks at most `timeout`.
std::vector<std::string> probe_nodes(
    const NodeInfo& self, const std::vector<NodeInfo>& others, std::chrono::milliseconds timeout);

/// Asks the store of a job for a sign of life; empty where it answers.
std::string probe_store(
    const NodeInfo& self, const std::string& address, int port, std::chrono::milliseconds timeout);

}  // namespace lockstep::launch
