#include "comm/threads.h"

#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep::comm {

void run_ranks(int size, const std::function<void(Communicator&)>& body) {
  // c10d's flight recorder is one a process and not safe between ranks in threads: it crashes at
  // random.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        GroupOptions options;
        options.timeout = std::chrono::seconds(60);
        Communicator communicator = size == 1
                                        ? Communicator::alone()
                                        : Communicator(join_group(store, rank, size, options));
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
