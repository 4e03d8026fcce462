// Network namespaces that act as machines: each has its own address, host name and network, joined
// by a bridge.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "launch/helpers.h"

namespace lockstep::launch::testing {

class Machines {
 public:
  /// Returns an empty string if namespaces are allowed, otherwise the reason.
  static std::string unavailable();

  explicit Machines(int count);
  ~Machines();
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  /// Returns the address of a machine: "10.77.0.1" for machine 0, and so on.
  std::string address(int machine) const;
  /// Returns the namespace's name.
  std::string name(int machine) const;
  /// Later launches on `machine` see this file as /etc/hosts.
  void set_hosts(int machine, const std::filesystem::path& file) { hosts_[machine] = file; }
  /// Runs a shell command on a machine until it ends.
  Ran shell(int machine, const std::string& command) const;
  /// Starts `lockstep launch` with these arguments on a machine. `during` as in run().
  std::future<Ran> launch(
      int machine,
      std::vector<std::string> arguments,
      const std::string& marker = "",
      std::function<void(pid_t)> during = {}) const;

 private:
  int count_;
  std::string prefix_;
  std::map<int, std::filesystem::path> hosts_;
};

}  // namespace lockstep::launch::testing
