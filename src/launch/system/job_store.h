// The job's store for its workers, hosted by the launcher, or by rank 0 of a job without one, on
// one address. It implements the protocol of c10d's TCPStore, so Python and C++ workers can join,
// and needs no libtorch.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

namespace lockstep::launch {

/// Listens on `address` (loopback or the chosen interface; empty: all addresses) and serves clients
/// on its own thread. Throws Error (environment) if the port is in use; the error names the process
/// that uses it, if visible.
///
/// c10d's protocol has no authentication, so connections are filtered: local ones must belong to
/// this user or root, others must come from the given hosts.
class JobStore {
 public:
  /// Numeric addresses of other machines; nullopt: any.
  using Hosts = std::optional<std::set<std::string>>;
  /// `port` 0 selects a free one without a race.
  explicit JobStore(
      const std::string& address = "127.0.0.1",
      int port = 0,
      Hosts hosts = std::set<std::string>());
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;
  int port() const { return port_; }

 private:
  class Server;
  std::unique_ptr<Server> server_;
  int port_ = 0;
};

}  // namespace lockstep::launch
