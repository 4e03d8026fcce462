// Log lines with the rank on standard error, and a status line below them on a terminal.
// Thread-safe. Lines are written atomically.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Sets the log level. Lines below it are dropped. The default is kInfo.
void set_log_level(LogLevel level);
/// Prefixes later lines with "[rank N]". A negative rank removes the prefix.
void set_log_rank(int rank);
void log_line(LogLevel level, std::string_view text);

/// Sets the status line. It is drawn immediately in the last line of the terminal ("\r", clear to
/// the end, the text, no newline) and redrawn below every later log line. The caller must ensure
/// that it is a single line that fits the terminal. An empty string removes it. In a pipe, it can
/// be recognized because it starts with "\r\x1b[K" and has no newline.
void set_status_line(std::string_view text);
/// Ends the status line with a newline, so that it stays on the screen. Later log lines do not
/// redraw it.
void keep_status_line();
/// Writes whole lines unchanged above the status line. Used by processes that forward the output of
/// other processes.
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
