// Key-value store for the rendezvous of a job.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

using Store = c10::intrusive_ptr<c10d::Store>;

/// Address of the store, and the rank of this process.
struct Rendezvous {
  std::string address = "127.0.0.1";
  int port = 0;
  int rank = 0;
  int size = 1;
  bool hosted_by_agent = false;  // false: rank 0 hosts the store
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Store hosted by this process on `port`. If `port` is 0, uses a free port, which avoids races
/// between jobs. The store lives as long as the last reference to it. Throws Error (environment) if
/// the port is in use.
class HostedStore {
 public:
  explicit HostedStore(int port = 0);
  int port() const { return port_; }
  const Store& store() const { return store_; }

 private:
  Store store_;
  int port_ = 0;
};

/// Connects to the store of the job, or hosts it if this is rank 0 and no agent hosts it. Blocks
/// until connected. After the timeout, throws Error (environment) with the address and the port.
Store join_store(const Rendezvous& rendezvous);

/// Returns a view of the store whose keys begin with `prefix`.
Store with_prefix(const std::string& prefix, const Store& store);

}  // namespace lockstep::comm
