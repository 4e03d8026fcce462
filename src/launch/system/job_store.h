// Store of the job for its workers, hosted by the launcher. Implements the protocol of c10d's
// TCPStore for Python and C++ workers, without libtorch.
#pragma once

#include <memory>
#include <set>
#include <string>

namespace lockstep::launch {

/// Listens on `address` (loopback or the chosen interface; empty: all addresses) and serves clients
/// on its own thread. Throws Error (environment) if the port is in use; the error names the process
/// that uses it, if visible.
///
/// c10d's protocol has no authentication, so connections are filtered. Local connections must
/// belong to this user or root. Others must come from one of `hosts`.
class JobStore {
 public:
  /// If `port` is 0, the kernel selects a free one. `hosts` contains numeric addresses of other
  /// machines.
  explicit JobStore(
      const std::string& address = "127.0.0.1", int port = 0, std::set<std::string> hosts = {});
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
