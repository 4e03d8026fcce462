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

/// Connects to the job's store. If this is rank 0 and no agent hosts the store, hosts it first, on
/// the address of `address` only, while the result or a clone of it lives. A name that resolves to
/// loopback only here stands for the machine's outside address on all ranks.
///
/// Without an agent, ranks and store accept only processes of their own user and of root on the
/// same machine; the store accepts every process of another machine that reaches it.
///
/// Blocks until connected. Throws Error (environment) with address and port after the timeout, if
/// the store cannot be hosted, or if it belongs to another user.
Store join_store(const Rendezvous& rendezvous);

/// Returns a view of the store whose keys begin with `prefix`.
Store with_prefix(const std::string& prefix, const Store& store);

}  // namespace lockstep::comm
