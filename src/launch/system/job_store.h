// The store of a job, in which its workers meet: hosted by the launcher on one address alone. It
// speaks the protocol of c10d's TCPStore, so Python and C++ workers join it alike, and needs no
// libtorch.
#pragma once

#include <memory>
#include <set>
#include <string>

namespace lockstep::launch {

/// Listens on `address` (loopback, or the one interface that was named; empty: all) and nowhere
/// else, and serves from a thread of its own. It lives as long as the object. Error (environment)
/// where the port is taken, with the process that holds it where that can be seen.
///
/// c10d's protocol knows no secret, so the connections themselves are chosen: from this machine
/// those of this process's user and of root, from others those of the hosts that are named.
class JobStore {
 public:
  /// `port` 0 takes a free one, without a race. `hosts`: numeric addresses of other machines.
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
