// The key-value store through which the ranks of a job meet.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

using Store = c10::intrusive_ptr<c10d::Store>;

/// Where the ranks meet, and who this one is.
struct Rendezvous {
  std::string address = "127.0.0.1";
  int port = 0;
  int rank = 0;
  int size = 1;
  bool hosted_by_agent = false;  // else rank 0 hosts the store itself
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// A store of this process, on `port` or, where that is 0, on a free one (so that no two jobs race
/// for it). It lives as long as the last reference. Error (environment): the port is taken.
class HostedStore {
 public:
  explicit HostedStore(int port = 0);
  int port() const { return port_; }
  const Store& store() const { return store_; }

 private:
  Store store_;
  int port_ = 0;
};

/// Connects to the job's store, or hosts it where this is rank 0 and no agent does. Blocks until it
/// is there; Error (environment) with address and port after the timeout.
Store join_store(const Rendezvous& rendezvous);

/// A store whose keys begin with `prefix`.
Store with_prefix(const std::string& prefix, const Store& store);

}  // namespace lockstep::comm
