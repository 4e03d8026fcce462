// What workers print: shown on the console, written to files, and its end kept for the report.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/system/event_loop.h"

namespace lockstep::launch {

/// A terminal, pipe or file that several workers share. Never blocks the loop: what the reader does
/// not take yet waits here. Where the reader is gone (EPIPE) the rest is dropped.
class Console {
 public:
  /// `descriptor` stays the caller's.
  Console(EventLoop& loop, int descriptor) : loop_(loop), descriptor_(descriptor) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(std::string_view bytes);
  /// Writes whole lines above the status line.
  void write_lines(std::string_view lines);
  /// Draws the status line: what a worker keeps in the terminal's last line (base/log.h). It is
  /// drawn again below every line that is written. An empty text takes it away.
  void set_status(std::string_view text);
  /// So much waits that writers should pause.
  bool full() const { return pending_.size() > kFull; }
  /// Blocks until all is written, or `timeout` passed.
  void flush(std::chrono::milliseconds timeout);
  int descriptor() const { return descriptor_; }

 private:
  static constexpr size_t kFull = size_t{1} << 20;
  void write_some();

  EventLoop& loop_;
  int descriptor_;
  bool watched_ = false, closed_ = false;
  std::string pending_, status_;
};

/// A file that is appended to. A disk that is full or fails is told once on stderr; the job goes
/// on.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void write(std::string_view bytes);

 private:
  void give_up(const char* action);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The last lines of a worker, at most kLines of at most kLength bytes, whatever it printed.
class LineTail {
 public:
  static constexpr size_t kLines = 50, kLength = 2000;
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

/// Text made fit for a terminal: invalid UTF-8 becomes U+FFFD; control characters but the tab, and
/// what they begin (colours), go.
std::string printable(std::string_view text);
/// The same, line by line.
std::string printable_lines(std::string_view text);

/// Where one stream of one worker goes.
struct StreamRoute {
  Console* console = nullptr;  // null: not shown
  bool whole_lines =
      true;            // false: bytes as they come, for a stream that has the console to itself
  std::string prefix;  // before each line on the console
  std::shared_ptr<LogFile> file;      // null: none
  std::vector<std::string> needles;   // lines that hold any of these go, with the prefix, to ...
  std::shared_ptr<LogFile> filtered;  // ... this file, shared among workers
};

/// One stream of one worker: reads its pipe whenever there is something, and passes it on.
class OutputPump {
 public:
  /// `descriptor` stays the caller's, and must live as long as the pump.
  OutputPump(EventLoop& loop, int descriptor, StreamRoute route, LineTail& tail);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  /// Reads what is in the pipe now. False once its end was seen.
  bool drain();
  /// Shows a line that was begun and not ended, where it is older than a moment (a prompt) or
  /// `all`.
  void show_partial(bool all);
  /// drain(), show_partial(true), and the last line without a newline goes to the tail.
  void finish();
  /// Whether a line was begun that show_partial() is still to show.
  bool has_partial() const { return !partial_.empty() && !shows_status_; }

 private:
  void on_readable();
  bool read_once();
  void take(std::string_view bytes);
  void end_line();
  void show(std::string_view bytes, bool ends_line);
  bool take_status();

  EventLoop& loop_;
  int descriptor_;
  StreamRoute route_;
  LineTail& tail_;
  bool open_ = true;
  std::string partial_;        // of the line that is being read, what the console has not seen
  std::string line_;           // the line that is being read, cut to the tail's length
  bool line_shown_ = false;    // a part of this line is on the console already
  bool shows_status_ = false;  // partial_ is the console's status line
  std::chrono::steady_clock::time_point partial_since_;
};

}  // namespace lockstep::launch
