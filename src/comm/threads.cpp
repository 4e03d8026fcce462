// Runs ranks as threads of one process.
#include "comm/threads.h"

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep::comm {

void run_ranks(int size, const std::function<void(Communicator&)>& body) {
  run_ranks({.size = size}, body);
}

void run_ranks(const ThreadedRanks& ranks, const std::function<void(Communicator&)>& body) {
  const int size = ranks.size;
  // c10d's flight recorder is global to the process and not thread-safe; with ranks as threads it
  // crashes at random.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  // Gloo writes to sockets without MSG_NOSIGNAL. A lost rank must cause an error instead of a fatal
  // signal.
  std::signal(SIGPIPE, SIG_IGN);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(ranks.compute_threads);
        GroupOptions options;
        options.timeout = ranks.timeout;
        options.shared_memory = ranks.shared_memory;
        if (!ranks.devices.empty()) {
          options.device = ranks.devices.at(static_cast<size_t>(rank));
        }
        Communicator communicator =
            size == 1 ? Communicator::alone()
                      : Communicator(join_group(store, rank, size, options), options);
        communicator.barrier();  // no rank may leave before all ranks have connected
        body(communicator);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (first == nullptr) {
          first = std::current_exception();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

}  // namespace lockstep::comm
