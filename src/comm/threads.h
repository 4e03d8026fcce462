// Ranks as threads of this process, connected by a store in memory: for tests with several ranks,
// and for one process that drives several devices.
#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Runs `body` once as each of `size` ranks and returns when all have ended. Rethrows the first
/// exception (by time); the other ranks then fail in their next collective, so none waits forever.
/// `body` may move the communicator out.
void run_ranks(int size, const std::function<void(Communicator&)>& body);

struct ThreadedRanks {
  int size = 1;
  std::vector<c10::Device> devices{};  // one per rank; empty: CPU
  int compute_threads = 1;             // intra-op CPU threads per rank
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  bool shared_memory = true;  // false: Gloo
};
void run_ranks(const ThreadedRanks& ranks, const std::function<void(Communicator&)>& body);

}  // namespace lockstep::comm
