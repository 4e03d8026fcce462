// Ranks as threads of this process, that meet at one store in memory: how the
// tests run several ranks in milliseconds, and how one process drives several devices.
#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Runs `body` once as each of `size` ranks and returns when all have ended. The first exception
/// (by time) that left a body is thrown again; the other ranks then fail in their next collective,
/// so that none waits for ever. `body` may move the communicator away.
void run_ranks(int size, const std::function<void(Communicator&)>& body);

struct ThreadedRanks {
  int size = 1;
  std::vector<c10::Device> devices{};  // one a rank; empty: the CPU
  int compute_threads = 1;             // of each rank, for operations on the CPU
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  bool shared_memory = true;  // else Gloo
};
void run_ranks(const ThreadedRanks& ranks, const std::function<void(Communicator&)>& body);

}  // namespace lockstep::comm
