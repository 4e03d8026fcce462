// Machines as network namespaces: each with an address, a host name and a network of its own,
// joined by a bridge.
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
  /// Empty where namespaces are allowed here, else the reason.
  static std::string unavailable();

  explicit Machines(int count);
  ~Machines();
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  /// "10.77.0.1" of machine 0, and so on.
  std::string address(int machine) const;
  /// The namespace's name.
  std::string name(int machine) const;
  /// Later launches on `machine` see this file as /etc/hosts.
  void set_hosts(int machine, const std::filesystem::path& file) { hosts_[machine] = file; }
  /// Runs a shell command on a machine, to its end.
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
