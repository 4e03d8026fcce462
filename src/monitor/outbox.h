// Queue of data for a tracker's server, in a file of the run. Steps never wait for the server, and
// no data is lost if it cannot be reached.
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

/// Queue of lines. One thread adds lines, and a background thread sends them in order. Lines that
/// an earlier attempt has not sent are sent first. If the program is killed between sending and
/// removing a line, the line is sent twice.
class Outbox {
 public:
  /// Sends lines. If it throws Error (environment), sending is retried later. If it throws any
  /// other Error, the server has rejected the lines, and they are dropped with a warning.
  using Send = std::function<void(const std::vector<std::string>& lines)>;

  /// `name` is the server's name for messages. If `goes_on`, lines that are already in the file are
  /// sent; otherwise they are dropped. `cancel` interrupts a send in progress. Throws Error
  /// (checkpoint) if the file cannot be opened.
  Outbox(
      std::filesystem::path path,
      std::string name,
      bool goes_on,
      Send send,
      std::function<void()> cancel);
  /// Calls finish() if it has not been called yet.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Adds a line, given without newline. Throws Error (checkpoint) if it cannot be stored.
  void add(std::string_view line);
  /// Waits until all lines are sent, for at most `seconds` and only while the server answers.
  /// Returns true if no lines are left. Otherwise logs a warning that explains how to send the
  /// rest. No lines may be added afterwards.
  bool finish(double seconds = kFinishSeconds);

  static constexpr double kFinishSeconds = 10;
  /// Maximum size of the file. If it is reached, further lines are dropped with a warning.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

 private:
  void run();
  /// Returns the next batch of unsent lines and its size in bytes.
  std::pair<std::vector<std::string>, uint64_t> next() const;
  void forget(uint64_t bytes);

  const std::filesystem::path path_;
  const std::string name_;
  const Send send_;
  const std::function<void()> cancel_;
  File file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t sent_ = 0, end_ = 0;  // byte offsets in the file
  bool is_down_ = false, finishing_ = false, stopping_ = false, is_full_ = false;
  bool gave_up_ = false;  // an attempt that started after finish() was called has failed
  int64_t failures_ = 0;  // number of consecutive failures
  std::thread thread_;
};

}  // namespace lockstep::monitor
