// Output of workers. It is shown on the console and written to files, and the last lines are stored
// for the failure report.
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

/// Terminal, pipe or file that several workers share. Does not block the event loop: output that
/// the reader does not accept yet is buffered. If the reader has closed it (EPIPE), further output
/// is dropped.
class Console {
 public:
  /// Does not close `descriptor`.
  Console(EventLoop& loop, int descriptor) : loop_(loop), descriptor_(descriptor) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(std::string_view bytes);
  /// Writes whole lines above the status line.
  void write_lines(std::string_view lines);
  /// Shows the status line of a worker (base/log.h) on the last line of the terminal. It is redrawn
  /// below every written line. An empty string removes it.
  void set_status(std::string_view text);
  /// Returns true if so much output is buffered that writers should pause.
  bool full() const { return pending_.size() > kFull; }
  /// Blocks until all output is written or `timeout` has passed.
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

/// File for appending. If the disk is full or fails, logs it once on stderr, and the job continues.
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

/// Last lines of a worker: at most kLines, each of at most kLength bytes.
class LineTail {
 public:
  static constexpr size_t kLines = 50, kLength = 2000;
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

/// Makes text safe for a terminal. Invalid UTF-8 becomes U+FFFD. Control characters except the tab
/// are removed, as are control sequences (colors).
std::string printable(std::string_view text);
/// Applies printable() to each line.
std::string printable_lines(std::string_view text);

/// Destination of one stream of one worker.
struct StreamRoute {
  Console* console = nullptr;  // null: not shown
  bool whole_lines = true;     // false: unchanged, for a stream that is the console's only writer
  std::string prefix;          // printed before each line on the console
  std::shared_ptr<LogFile> file;      // null: not written to a file
  std::vector<std::string> needles;   // lines that contain any of these strings are also written,
                                      // with the prefix, to `filtered`
  std::shared_ptr<LogFile> filtered;  // file for these lines, shared among workers
};

/// Reads one stream of one worker when it is readable, and forwards the output.
class OutputPump {
 public:
  /// The caller owns `descriptor`. It must remain open during the lifetime of the object.
  OutputPump(EventLoop& loop, int descriptor, StreamRoute route, LineTail& tail);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  /// Reads the available output. Returns false at the end of the stream.
  bool drain();
  /// Shows an incomplete line, such as a prompt, if it has been incomplete for a moment or if `all`
  /// is true.
  void show_partial(bool all);
  /// Calls drain() and show_partial(true). Adds an incomplete last line to the tail.
  void finish();
  /// Returns true if show_partial() still has to show an incomplete line.
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
  std::string partial_;        // part of the current line that the console has not shown
  std::string line_;           // current line, truncated to the tail's length
  bool line_shown_ = false;    // the console has shown a part of this line
  bool shows_status_ = false;  // partial_ is the console's status line
  std::chrono::steady_clock::time_point partial_since_;
};

}  // namespace lockstep::launch
