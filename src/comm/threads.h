// Ranks as threads of this process that are connected by an in-memory store. Used by tests with
// several ranks, and by processes that drive several devices.
#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Runs `body` on `size` ranks, one thread each, and returns when all have ended. If a rank throws,
/// the other ranks fail in their next collective, so that no rank waits forever. Rethrows the first
/// exception by time. `body` may move the communicator out.
void run_ranks(int size, const std::function<void(Communicator&)>& body);

struct ThreadedRanks {
  int size = 1;
  std::vector<c10::Device> devices{};  // one per rank; empty: CPU
  int compute_threads = 1;             // number of intra-op CPU threads per rank
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  bool shared_memory = true;  // false: use Gloo
};
void run_ranks(const ThreadedRanks& ranks, const std::function<void(Communicator&)>& body);

}  // namespace lockstep::comm
