// Detection of lost ranks through the store, for backends whose collectives only block, such as
// NCCL.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/store.h"

namespace lockstep::comm {

/// Heartbeat thread of a rank. It updates this rank's counter in the store and monitors the next
/// rank's. A loss detected by one rank reaches all ranks within two beats. It has its own
/// connection to the store.
class Heartbeat {
 public:
  struct Options {
    std::chrono::milliseconds beat = std::chrono::seconds(2);
    std::chrono::milliseconds silence = std::chrono::minutes(1);  // then a rank is lost
  };
  /// Every rank of the job creates one after the rendezvous. The thread calls `lost` once, when a
  /// rank or the store is lost; `lost` must abort pending operations. From then on every call of a
  /// Communicator throws Error (peer lost) with the lost rank.
  Heartbeat(const Store& store, int rank, int size, Options options, std::function<void()> lost);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// Records a normal exit in the store; if destroyed during stack unwinding, records that this
  /// rank failed.
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
  std::string heard_;  // last value read from the next rank
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false, told_ = false;
  std::thread thread_;
};

/// Describes the lost rank detected by a Heartbeat of this process; empty if none.
std::string lost_rank();

}  // namespace lockstep::comm
