// Detects lost ranks through the store, for backends such as NCCL whose collectives block without
// reporting an error.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/store.h"

namespace lockstep::comm {

/// Heartbeat thread of a rank. It increments this rank's counter in the store and watches that of
/// the next rank. A loss that one rank detects is known to all ranks within two beats. It uses its
/// own connection to the store.
class Heartbeat {
 public:
  struct Options {
    std::chrono::milliseconds beat = std::chrono::seconds(2);
    std::chrono::milliseconds silence = std::chrono::minutes(1);  // a rank is lost after this time
                                                                  // without a beat
  };
  /// Must be created on every rank of the job after the rendezvous. When a rank or the store is
  /// lost, the thread calls `lost` once, which must abort pending operations. From then on, every
  /// call of a Communicator throws Error (peer lost) that names the lost rank.
  Heartbeat(const Store& store, int rank, int size, Options options, std::function<void()> lost);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// Records a normal exit in the store. If called during stack unwinding, records that this rank
  /// failed.
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
  std::string heard_;  // value last read from the next rank
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false, told_ = false;
  std::thread thread_;
};

/// Returns a description of the lost rank that a Heartbeat of this process detected; empty if there
/// is none.
std::string lost_rank();

}  // namespace lockstep::comm
