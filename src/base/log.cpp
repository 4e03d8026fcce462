// Implements log lines and the status line on standard error.
#include "base/log.h"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

#include <unistd.h>

#include "base/first_rank.h"
#include "base/redact.h"

namespace lockstep {
namespace {

std::atomic<LogLevel>& level_setting() {
  static std::atomic<LogLevel> level{LogLevel::kInfo};
  return level;
}

std::atomic<int>& rank_setting() {
  static std::atomic<int> rank{-1};
  return rank;
}

/// Text in the last line of the terminal, and the lock that protects all output.
struct StatusLine {
  std::mutex mutex;
  std::string text;
};

StatusLine& status_line() {
  static auto* const status = new StatusLine;  // never destroyed: threads may log during shutdown
  return *status;
}

constexpr std::string_view kClearLine = "\r\x1b[K";

void write_whole(std::string_view text) {
  // Uses a single write so that lines of several processes on one pipe do not interleave.
  while (!text.empty()) {
    const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return;  // stderr is not writable
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

/// Removes control characters, because lines may contain text from other machines and files that
/// must not control the terminal.
std::string without_control(std::string_view text) {
  std::string shown(text);
  for (char& letter : shown) {
    const bool is_control = static_cast<unsigned char>(letter) < ' ' || letter == '\x7f';
    letter = is_control && letter != '\n' && letter != '\t' ? '?' : letter;
  }
  return shown;
}

}  // namespace

void set_log_level(LogLevel level) {
  level_setting() = level;
}
void set_log_rank(int rank) {
  rank_setting() = rank;
}

void log_line(LogLevel level, std::string_view text) {
  if (level < level_setting()) {
    return;
  }
  const int rank = rank_setting();
  const std::string prefix = rank >= 0 ? fmt::format("[rank {}] ", rank) : "";
  write_lines(fmt::format("{}{}{}\n", prefix, name_of(level), without_control(redacted(text))));
}

void warn_on_first_rank(std::string_view text) {
  static std::mutex mutex;
  static auto* const logged = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  if (rank_setting() <= 0 && logged->emplace(text).second) {
    log_line(LogLevel::kWarning, text);
  }
}

void write_lines(std::string_view lines) {
  StatusLine& status = status_line();
  const std::lock_guard lock(status.mutex);
  if (status.text.empty()) {
    write_whole(lines);
  } else {
    write_whole(fmt::format("{}{}{}{}", kClearLine, lines, kClearLine, status.text));
  }
}

void set_status_line(std::string_view text) {
  StatusLine& status = status_line();
  const std::lock_guard lock(status.mutex);
  if (text == status.text) {
    return;
  }
  status.text = text;
  write_whole(fmt::format("{}{}", kClearLine, text));
}

void keep_status_line() {
  StatusLine& status = status_line();
  const std::lock_guard lock(status.mutex);
  if (!status.text.empty()) {
    status.text.clear();
    write_whole("\n");
  }
}

}  // namespace lockstep
