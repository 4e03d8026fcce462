// Output of workers: shown on the console, written to files, and the last lines kept for the
// report.
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

/// A terminal, pipe or file shared by several workers. Never blocks the loop: output that the
/// reader does not accept yet is buffered. If the reader is gone (EPIPE), the rest is dropped.
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
  /// Draws the status line, a worker's text on the terminal's last line (base/log.h). It is redrawn
  /// below every written line. An empty string removes it.
  void set_status(std::string_view text);
  /// True if so much output is buffered that writers should pause.
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

/// A file for appending. A full or failing disk is reported once on stderr; the job continues.
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

/// The last lines of a worker, at most kLines of at most kLength bytes.
class LineTail {
 public:
  static constexpr size_t kLines = 50, kLength = 2000;
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

/// Makes text safe for a terminal: invalid UTF-8 becomes U+FFFD; control characters except the tab,
/// and their sequences (colors), are removed.
std::string printable(std::string_view text);
/// The same, line by line.
std::string printable_lines(std::string_view text);

/// Destination of one stream of one worker.
struct StreamRoute {
  Console* console = nullptr;  // null: not shown
  bool whole_lines = true;  // false: bytes unchanged, for a stream that has the console to itself
  std::string prefix;       // before each line on the console
  std::shared_ptr<LogFile> file;      // null: none
  std::vector<std::string> needles;   // lines that contain any of these strings are also written,
                                      // with the prefix, to `filtered`
  std::shared_ptr<LogFile> filtered;  // file for these lines, shared among workers
};

/// One stream of one worker: reads its pipe when it is readable and forwards the output.
class OutputPump {
 public:
  /// The caller owns `descriptor`, which must outlive the pump.
  OutputPump(EventLoop& loop, int descriptor, StreamRoute route, LineTail& tail);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  /// Reads the available output. Returns false at the end of the stream.
  bool drain();
  /// Shows an incomplete line if it is older than a moment (a prompt), or if `all`.
  void show_partial(bool all);
  /// Calls drain() and show_partial(true), and adds an unterminated last line to the tail.
  void finish();
  /// True if an incomplete line is still to be shown by show_partial().
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
  std::string partial_;        // the part of the current line that the console has not shown
  std::string line_;           // the line that is being read, cut to the tail's length
  bool line_shown_ = false;    // part of this line is on the console already
  bool shows_status_ = false;  // partial_ is the console's status line
  std::chrono::steady_clock::time_point partial_since_;
};

}  // namespace lockstep::launch
