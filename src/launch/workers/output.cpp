// Forwards and records the output of workers.
#include "launch/workers/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "base/format.h"
#include "base/log.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongestPartial = size_t{64} << 10;
constexpr std::chrono::milliseconds kPartialAge{100};
constexpr std::string_view kClearLine = "\r\x1b[K";  // prefix of a status line

bool writable_now(int descriptor) {
  pollfd poll{descriptor, POLLOUT, 0};
  return ::poll(&poll, 1, 0) > 0;
}

// Returns the length of the UTF-8 character at the start of `text`, or 0 if it is invalid.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  // Reject overlong forms, surrogates and code points beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// Returns the length of the terminal control sequence (ESC [ ... letter) at the start of `text`.
size_t escape_length(std::string_view text) {
  size_t length = 1;
  if (length < text.size() && text[length] == '[') {
    ++length;
    while (length < text.size() && !(text[length] >= '@' && text[length] <= '~')) {
      ++length;
    }
    ++length;
  }
  return std::min(length, text.size());
}

}  // namespace

Console::~Console() {
  if (watched_) {
    loop_.forget(descriptor_);
  }
}

void Console::write(std::string_view bytes) {
  if (closed_) {
    return;
  }
  pending_.append(bytes);
  if (!watched_) {
    write_some();
  }
}

void Console::write_lines(std::string_view lines) {
  if (status_.empty()) {
    write(lines);
  } else {
    write(fmt::format("{}{}{}{}", kClearLine, lines, kClearLine, status_));
  }
}

void Console::set_status(std::string_view text) {
  if (text != status_) {
    status_ = text;
    write(fmt::format("{}{}", kClearLine, status_));
  }
}

void Console::write_some() {
  size_t done = 0;
  // A pipe that poll() reports as writable accepts PIPE_BUF bytes without blocking. The descriptor
  // cannot be made non-blocking, because it is shared with the shell.
  while (done < pending_.size() && writable_now(descriptor_)) {
    const size_t size = std::min<size_t>(pending_.size() - done, PIPE_BUF);
    const ssize_t written = ::write(descriptor_, pending_.data() + done, size);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      closed_ = true;
      pending_.clear();
      done = 0;
      break;
    }
    done += written > 0 ? static_cast<size_t>(written) : 0;
  }
  pending_.erase(0, done);
  if (pending_.empty() && watched_) {
    loop_.forget(descriptor_);
    watched_ = false;
  } else if (!pending_.empty() && !watched_) {
    loop_.watch_writable(descriptor_, [this] { write_some(); });
    watched_ = true;
  }
}

void Console::flush(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!pending_.empty() && Clock::now() < deadline) {
    pollfd poll{descriptor_, POLLOUT, 0};
    ::poll(&poll, 1, 50);
    write_some();
  }
}

LogFile::LogFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    give_up("open");
  }
}

LogFile::~LogFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void LogFile::give_up(const char* action) {
  log_warning(
      "cannot {} the log {}: {}; logging to it stops, the job continues",
      action,
      path_.string(),
      std::strerror(errno));
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = -1;
}

void LogFile::write(std::string_view bytes) {
  while (descriptor_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      give_up("write");
    } else if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
}

void LineTail::add(std::string_view line) {
  lines_.emplace_back(line.substr(0, kLength));
  if (lines_.size() > kLines) {
    lines_.pop_front();
  }
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    size_t length = utf8_length(text);
    const char first = text[0];
    if (first == '\x1b') {
      length = escape_length(text);
    } else if (length == 0) {
      result += "\xEF\xBF\xBD";
      length = 1;
    } else if (first == '\t' || length > 1 || (first >= ' ' && first != '\x7f')) {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result;
}

std::string printable_lines(std::string_view text) {
  std::string result;
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    result += printable(text.substr(0, end)) + "\n";
    text.remove_prefix(end + 1);
  }
  return result + printable(text);
}

OutputPump::OutputPump(EventLoop& loop, int descriptor, StreamRoute route, LineTail& tail)
    : loop_(loop),
      descriptor_(descriptor),
      route_(std::move(route)),
      tail_(tail) {
  loop_.watch(descriptor_, [this] { on_readable(); });
}

OutputPump::~OutputPump() {
  loop_.forget(descriptor_);
}

void OutputPump::on_readable() {
  if (route_.console != nullptr && route_.console->full()) {
    // If the reader of the console is slow, wait only briefly. Memory stays limited because the
    // worker's output is not read, and the end of a worker is still noticed.
    route_.console->flush(std::chrono::milliseconds(5));
    return;
  }
  if (!read_once() && !open_) {
    loop_.forget(descriptor_);
  }
}

bool OutputPump::read_once() {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(descriptor_, buffer.data(), buffer.size());
  if (size > 0) {
    take({buffer.data(), static_cast<size_t>(size)});
    return true;
  }
  if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    open_ = false;
  }
  return false;
}

bool OutputPump::drain() {
  while (open_ && read_once()) {
  }
  return open_;
}

void OutputPump::take(std::string_view bytes) {
  if (route_.file != nullptr) {
    route_.file->write(bytes);
  }
  if (!route_.whole_lines) {
    show(bytes, /*ends_line=*/false);
  }
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() < LineTail::kLength) {
      line_.append(part.substr(0, LineTail::kLength));
    }
    if (partial_.empty()) {
      partial_since_ = Clock::now();
    }
    if (route_.whole_lines && route_.console != nullptr) {
      partial_.append(part);
    }
    if (end == std::string_view::npos) {
      break;
    }
    end_line();
    bytes.remove_prefix(end + 1);
  }
  // Show partial lines that are redrawn with '\r' (progress bars) or very long.
  if (!take_status() &&
      (partial_.size() > kLongestPartial || partial_.find('\r') != std::string::npos)) {
    show_partial(/*all=*/true);
  }
}

// Shows the partial line as status line, below the lines of all workers. Returns false if it is not
// a status line.
bool OutputPump::take_status() {
  if (line_shown_ || route_.console == nullptr || !partial_.starts_with(kClearLine.substr(0, 1))) {
    return false;
  }
  const size_t begin = partial_.rfind(kClearLine);
  if (begin == std::string::npos) {
    return kClearLine.starts_with(partial_);  // incomplete: wait for the rest
  }
  partial_.erase(0, begin);
  std::string_view text = std::string_view(partial_).substr(kClearLine.size());
  text = text.substr(0, text.find('\r'));  // the next status line has started
  shows_status_ = true;
  route_.console->set_status(text.empty() ? "" : route_.prefix + std::string(text));
  return true;
}

void OutputPump::end_line() {
  if (route_.whole_lines) {
    // If a worker writes a line above its status line, the sequence that clears the status line
    // precedes it.
    const size_t cleared = partial_.rfind(kClearLine);
    if (shows_status_ && route_.console != nullptr) {
      route_.console->set_status("");
    }
    show(
        cleared == std::string::npos || line_shown_
            ? std::string_view(partial_)
            : std::string_view(partial_).substr(cleared + kClearLine.size()),
        /*ends_line=*/true);
  }
  partial_.clear();
  line_shown_ = shows_status_ = false;
  const bool wanted =
      route_.filtered != nullptr &&
      std::any_of(route_.needles.begin(), route_.needles.end(), [&](const std::string& needle) {
        return line_.find(needle) != std::string::npos;
      });
  if (wanted) {
    route_.filtered->write(route_.prefix + line_ + "\n");
  }
  // Record only the last state of a progress bar.
  const std::string_view line =
      line_.ends_with('\r') ? std::string_view(line_).substr(0, line_.size() - 1) : line_;
  const size_t redrawn = line.rfind('\r');
  tail_.add(redrawn == std::string_view::npos ? line : line.substr(redrawn + 1));
  line_.clear();
}

void OutputPump::show(std::string_view bytes, bool ends_line) {
  if (route_.console == nullptr) {
    return;
  }
  if (!route_.whole_lines) {
    route_.console->write(bytes);
    return;
  }
  std::string text = line_shown_ ? "" : route_.prefix;
  text.append(bytes);
  if (ends_line) {
    text += '\n';
  }
  if (ends_line && !line_shown_) {
    route_.console->write_lines(text);
  } else {
    route_.console->write(text);
  }
}

void OutputPump::show_partial(bool all) {
  if (!has_partial() || (!all && Clock::now() - partial_since_ < kPartialAge)) {
    return;
  }
  show(partial_, /*ends_line=*/false);
  line_shown_ = true;
  partial_.clear();
}

void OutputPump::finish() {
  drain();
  if (shows_status_) {
    end_line();  // the last state remains visible
  }
  show_partial(/*all=*/true);
  if (!line_.empty()) {
    tail_.add(line_);
    line_.clear();
  }
}

}  // namespace lockstep::launch
