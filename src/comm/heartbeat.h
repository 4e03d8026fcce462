// How the ranks of a job hear that one is gone, where collectives only wait: those of NCCL do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/store.h"

namespace lockstep::comm {

/// Says in the store that this rank lives, and looks after the next rank; what one rank finds, all
/// hear within two beats. A thread of its own, and a connection of its own to the store.
class Heartbeat {
 public:
  struct Options {
    std::chrono::milliseconds beat = std::chrono::seconds(2);
    std::chrono::milliseconds silence = std::chrono::minutes(1);  // after which a rank is lost
  };
  /// Every rank of the job has one, once all have met. `lost` is called once, by the thread, when a
  /// rank is lost or the store is: it ends what this rank waits for. From then on every call of a
  /// Communicator throws Error (peer lost) that tells who it was.
  Heartbeat(const Store& store, int rank, int size, Options options, std::function<void()> lost);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// Says farewell; or while an exception is on its way, that this rank failed.
  ~Heartbeat();

 private:
  void run();
  void beat_once();
  bool next_is_silent();
  void tell(const std::string& who);

  Store store_;
  const int rank_, size_;
  const Options options_;
  std::function<void()> lost_;
  int64_t beats_ = 0;
  std::string heard_;  // of the next rank
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false, told_ = false;
  std::thread thread_;
};

/// Who was lost, as a Heartbeat of this process heard; empty: nobody.
std::string lost_rank();

}  // namespace lockstep::comm
