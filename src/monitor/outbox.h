// What is to be sent to a tracker's server, in a file of the run until it is: a step never waits
// for a server, and one that is down loses nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"

namespace lockstep::monitor {

/// Lines, added by one thread and sent, in their order, by one of its own. What an earlier attempt
/// at the run could not send is sent first. A line may be sent twice, where the program was killed
/// between sending and forgetting it.
class Outbox {
 public:
  /// Sends lines. Error(kEnvironment): they are tried again later; any other Error: the server does
  /// not want them, and they are dropped with a warning.
  using Send = std::function<void(const std::vector<std::string>& lines)>;

  /// `name`: the server's, for messages. `goes_on`: what lies in the file is still to be sent, else
  /// it is dropped. `cancel` makes a send that goes on end soon. Throws Error(kCheckpoint) where
  /// the file cannot be had.
  Outbox(
      std::filesystem::path path,
      std::string name,
      bool goes_on,
      Send send,
      std::function<void()> cancel);
  /// finish(), where that was not called.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Without a newline. Throws Error(kCheckpoint) where it cannot be kept.
  void add(std::string_view line);
  /// Waits until everything is sent, for `seconds` at most and no longer than the server answers;
  /// says with a warning what is left, and how to send it. Returns whether nothing is. Nothing may
  /// be added afterwards.
  bool finish(double seconds = kFinishSeconds);

  static constexpr double kFinishSeconds = 10;
  /// Of the file: what would make it longer is dropped, with a warning.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

 private:
  void run();
  /// Some of the first lines that are not sent; how many bytes of the file they are.
  std::pair<std::vector<std::string>, uint64_t> next() const;
  void forget(uint64_t bytes);

  const std::filesystem::path path_;
  const std::string name_;
  const Send send_;
  const std::function<void()> cancel_;
  File file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t sent_ = 0, end_ = 0;  // bytes of the file
  bool is_down_ = false, finishing_ = false, stopping_ = false, is_full_ = false;
  bool gave_up_ = false;  // on a try that began when the run had ended
  int64_t failures_ = 0;  // without a success since
  std::thread thread_;
};

}  // namespace lockstep::monitor
