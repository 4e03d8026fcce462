// Lines to standard error, each with the rank that says them, and the status line that stays below
// them on a terminal. Thread-safe: a line is written whole.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Lines below this level are dropped. The default is kInfo.
void set_log_level(LogLevel level);
/// Every later line begins with "[rank N]"; a negative rank takes the prefix away.
void set_log_rank(int rank);
void log_line(LogLevel level, std::string_view text);

/// The status line: drawn at once in the terminal's last line ("\r", clear to the end, the text, no
/// newline), and again below every line logged later, so that neither tears the other. One line,
/// shorter than the terminal is wide: the caller's duty. An empty text takes it away. Behind a pipe
/// it can be told from other text: it begins with "\r\x1b[K" and no newline follows.
void set_status_line(std::string_view text);
/// Ends the status line with a newline, so that it stays on the screen, and forgets it.
void keep_status_line();
/// Writes whole lines, as they are, above the status line: for a process that passes on what others
/// say.
void write_lines(std::string_view lines);

template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lockstep
