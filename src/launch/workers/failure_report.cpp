// Formats the reports of failures.
#include "launch/workers/failure_report.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <ctime>
#include <limits>
#include <tuple>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/json_number.h"
#include "base/redact.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;
constexpr uintmax_t kLargestErrorFile = uintmax_t{16} << 20;
constexpr size_t kTracebackLines = 60;

std::string string_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns a number that is stored as a number or as a string; torch writes timestamps as strings.
std::optional<int64_t> integer_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return std::nullopt;
  }
  if (found->is_number_integer()) {
    return found->get<int64_t>();
  }
  int64_t value = 0;
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()) {
      return value;
    }
  }
  return std::nullopt;
}

std::string local_time(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string exit_text(const Failure& failure) {
  if (failure.hangs) {
    return fmt::format("none (pid: {}): hanging", failure.pid);
  }
  std::string text = fmt::format("{} (pid: {})", failure.status.signed_code(), failure.pid);
  if (failure.status.signal != 0) {
    text += fmt::format(" ({})", signal_name(failure.status.signal));
  }
  return text;
}

// Adds the last lines of a long stack trace, which contain the innermost frame and the message.
void add_traceback(std::string& text, const Failure& failure) {
  if (failure.callstack.empty()) {
    text += fmt::format("  traceback : {}\n", printable(failure.message));
    return;
  }
  std::vector<std::string> lines = lines_of(failure.callstack);
  text += "  traceback : ";
  const size_t skipped = lines.size() > kTracebackLines ? lines.size() - kTracebackLines : 0;
  if (skipped > 0) {
    text += fmt::format("... {} lines\n", skipped);
  }
  for (size_t i = skipped; i < lines.size(); ++i) {
    text += fmt::format("{}{}\n", i == 0 ? "" : "    ", printable(lines[i]));
  }
}

std::string entry(size_t index, const Failure& failure) {
  std::string text = fmt::format(
      "[{}]:\n  time      : {}\n  host      : {}\n  rank      : {} (local_rank: {})\n"
      "  exitcode  : {}\n  error_file: {}\n",
      index,
      local_time(failure.time),
      printable(failure.host),
      failure.rank,
      failure.local_rank,
      exit_text(failure),
      failure.error_file.empty() ? "<N/A>" : printable(failure.error_file));
  add_traceback(text, failure);
  return text;
}

/// Returns true for configuration errors of Lockstep's ranks. They are the same on every rank and
/// do not depend on the machine.
bool is_configuration_error(const Failure& failure) {
  return failure.status.signal == 0 && failure.status.code == exit_code(ErrorKind::kConfig) &&
         failure.message.starts_with("lockstep::Error: ");
}

std::string configuration_report(const Failure& first, const std::vector<Failure>& failures) {
  std::string text = "error: ";
  for (const std::string& line : lines_of(first.callstack)) {
    text += printable(line) + "\n";
  }
  const auto others = std::count_if(failures.begin(), failures.end(), [&](const Failure& other) {
    return &other != &first && other.message == first.message;
  });
  text += fmt::format("  on rank {}", first.rank);
  return text + (others > 0 ? fmt::format(" and {} others\n", others) : "\n");
}

std::string last_bytes(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(text.size() - most);
}

// Limits each string to this number of bytes. Keeps its end, which contains the innermost frame.
Failure shortened(Failure failure, size_t most) {
  for (std::string* text :
       {&failure.host, &failure.error_file, &failure.hint, &failure.memory, &failure.message}) {
    text->resize(std::min(text->size(), most));
  }
  failure.callstack = last_bytes(failure.callstack, most);
  size_t bytes = 0, kept = 0;
  while (kept < failure.last_lines.size()) {
    bytes += failure.last_lines[failure.last_lines.size() - 1 - kept].size() + 1;
    if (bytes > most) {
      break;
    }
    ++kept;
  }
  failure.last_lines.erase(
      failure.last_lines.begin(), failure.last_lines.end() - static_cast<std::ptrdiff_t>(kept));
  return failure;
}

std::string as_json(const Failure& failure) {
  json object{
      {"host", failure.host},
      {"rank", failure.rank},
      {"local_rank", failure.local_rank},
      {"pid", failure.pid},
      {"code", failure.status.code},
      {"signal", failure.status.signal},
      {"time", failure.time},
      {"error_file", failure.error_file},
      {"message", failure.message},
      {"callstack", failure.callstack},
      {"hint", failure.hint},
      {"memory", failure.memory},
      {"last_lines", failure.last_lines},
      {"hangs", failure.hangs}};
  if (failure.step) {
    object["step"] = *failure.step;
  }
  return object.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

}  // namespace

std::optional<ErrorFile> read_error_file(const std::filesystem::path& path) {
  std::error_code none;
  const uintmax_t size = std::filesystem::file_size(path, none);
  if (none || size == 0 || size > kLargestErrorFile) {
    return std::nullopt;
  }
  try {
    const json whole = read_json(path);
    ErrorFile result;
    const auto message = whole.find("message");
    if (!whole.is_object() || message == whole.end()) {
      return std::nullopt;
    }
    if (message->is_string()) {
      result.message = message->get<std::string>();
      result.timestamp = integer_at(whole, "timestamp");
      return result;
    }
    result.message = string_at(*message, "message");
    const auto extra = message->find("extraInfo");
    if (extra != message->end() && extra->is_object()) {
      result.callstack = string_at(*extra, "py_callstack");
      if (result.callstack.empty()) {
        result.callstack = string_at(*extra, "cpp_callstack");
      }
      result.hint = string_at(*extra, "hint");
      result.timestamp = integer_at(*extra, "timestamp");
      result.step = integer_at(*extra, "step");
    }
    return result;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void copy_error_file(
    const std::filesystem::path& from, const std::filesystem::path& to, int exit_code) {
  try {
    json whole = read_json(from);
    if (whole.at("message").is_object()) {
      whole["message"]["errorCode"] = exit_code;
    }
    write_file_atomically(to, whole.dump());
  } catch (const std::exception&) {
    // Ignored, because the copy for a parent launcher is optional.
  }
}

Failure describe(
    const Worker& worker,
    const std::optional<MemoryCounters>& before,
    const std::optional<MemoryCounters>& after) {
  Failure result;
  result.host = host_name();
  result.rank = worker.rank;
  result.local_rank = worker.local_rank;
  result.pid = worker.pid;
  result.status = worker.status.value_or(ExitStatus{});
  result.time = std::chrono::system_clock::to_time_t(worker.ended);
  if (const auto file = read_error_file(worker.error_file)) {
    result.error_file = worker.error_file.string();
    // Python programs record the texts of their libraries.
    result.message = redacted(file->message);
    result.callstack = redacted(file->callstack);
    result.hint = file->hint;
    result.step = file->step;
    result.time = file->timestamp.value_or(result.time);
  } else if (result.status.signal != 0) {
    result.message = fmt::format(
        "Signal {} ({}) received by PID {}",
        result.status.signal,
        signal_name(result.status.signal),
        result.pid);
  } else {
    result.message =
        "no error file: the program exited by itself, or does not use record() (C++) or @record "
        "(Python)";
  }
  if (result.status.signal == SIGKILL) {
    result.memory = oom_explanation(before, after);
  }
  for (const std::string& line : worker.tail.lines()) {
    result.last_lines.push_back(printable(redacted(line)));
  }
  return result;
}

std::optional<int> unanswering_rank(const std::string& message) {
  constexpr std::string_view kNoAnswer = "no answer", kRank = "rank ";
  const size_t at = message.find(kNoAnswer);
  const size_t rank = at == std::string::npos ? at : message.rfind(kRank);
  int number = 0;
  if (rank == std::string::npos || rank < at ||
      std::from_chars(message.data() + rank + kRank.size(), message.data() + message.size(), number)
              .ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

bool gave_up_waiting(const std::string& message) {
  return message.find("no answer") != std::string::npos ||
         message.find("Timed out waiting") != std::string::npos ||
         message.find("Application timeout") != std::string::npos;
}

Failure describe_hanging(
    const Worker& worker, const Failure& who_gave_up, const std::string& found) {
  Failure result;
  result.host = host_name();
  result.rank = worker.rank;
  result.local_rank = worker.local_rank;
  result.pid = worker.pid;
  result.status.code = kPeerLostCode;
  result.time = who_gave_up.time;
  result.hangs = true;
  result.message = fmt::format(
      "hanging: rank {} timed out waiting for it: {}", who_gave_up.rank, who_gave_up.message);
  if (!found.empty()) {
    result.callstack = result.message + "\n" + found;
  }
  result.hint =
      "look for a stopped process, or a disk or network that does not respond; if it is only slow, "
      "raise ddp_timeout";
  result.step = who_gave_up.step;
  for (const std::string& line : worker.tail.lines()) {
    result.last_lines.push_back(printable(line));
  }
  return result;
}

std::string to_json(const Failure& failure) {
  // Eight failures must fit in one message even after escaping, so the beginning of long strings is
  // cut off.
  constexpr size_t kLongest = size_t{192} << 10;
  std::string text;
  for (size_t most = size_t{64} << 10; most > 64; most /= 2) {
    text = as_json(shortened(failure, most));
    if (text.size() <= kLongest) {
      break;
    }
  }
  return text;
}

std::optional<Failure> failure_from_json(const std::string& text) {
  try {
    const json object = parse_json(text, "a failure");
    Failure result;
    result.host = printable(object.at("host").get<std::string>());
    result.rank = integer_of<int>(object.at("rank"));
    result.local_rank = integer_of<int>(object.at("local_rank"));
    result.pid = integer_of(object.at("pid"));
    result.status.code = integer_of<int>(object.at("code"));
    result.status.signal = integer_of<int>(object.at("signal"));
    result.time = integer_of(object.at("time"));
    result.error_file = printable(object.at("error_file").get<std::string>());
    result.message = object.at("message").get<std::string>();
    result.callstack = object.at("callstack").get<std::string>();
    result.hint = object.at("hint").get<std::string>();
    result.memory = printable(object.at("memory").get<std::string>());
    for (const json& line : object.at("last_lines")) {
      result.last_lines.push_back(printable(line.get<std::string>()));
    }
    result.step = integer_at(object, "step");
    result.hangs = object.value("hangs", false);
    return result;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool lost_a_peer(const ExitStatus& status) {
  return status.signal == SIGPIPE || (status.signal == 0 && status.code == kPeerLostCode);
}

size_t root_cause(const std::vector<Failure>& failures) {
  // Clocks of different machines are not comparable, so failures of different machines are ordered
  // by arrival.
  const auto precedes = [](const Failure& a, const Failure& b) {
    const auto weight = [](const Failure& failure) {
      return std::pair(!failure.hangs, lost_a_peer(failure.status));
    };
    return weight(a) != weight(b) ? weight(a) < weight(b) : a.host == b.host && a.time < b.time;
  };
  size_t best = 0;
  for (size_t i = 1; i < failures.size(); ++i) {
    if (precedes(failures[i], failures[best])) {
      best = i;
    }
  }
  return best;
}

std::string report(
    const std::string& name, const std::vector<Failure>& failures, size_t lines, int64_t others) {
  const std::string heavy(60, '='), light(60, '-');
  const size_t root = root_cause(failures);
  if (is_configuration_error(failures[root])) {
    return fmt::format(
        "{}\n{} FAILED\n{}\n{}{}\n",
        heavy,
        name,
        light,
        configuration_report(failures[root], failures),
        heavy);
  }
  std::string text = fmt::format("{}\n{} FAILED\n{}\nFailures:\n", heavy, name, light);
  size_t index = 0;
  constexpr size_t kListed = 8;
  for (size_t i = 0; i < failures.size(); ++i) {
    if (i != root && ++index <= kListed) {
      text += entry(index, failures[i]);
    }
  }
  others += static_cast<int64_t>(index - std::min(index, kListed));
  if (index == 0 && others == 0) {
    text += "  <NO_OTHER_FAILURES>\n";
  } else if (others > 0) {
    text += fmt::format("  ... and {} more\n", others);
  }
  const Failure& first = failures[root];
  text += fmt::format("{}\nRoot Cause (first observed failure):\n{}", light, entry(0, first));
  if (first.step) {
    text += fmt::format("  step      : {}\n", *first.step);
  }
  if (!first.memory.empty()) {
    text += fmt::format("  memory    : {}\n", printable(first.memory));
  }
  if (!first.hint.empty()) {
    text += fmt::format("  try       : {}\n", printable(first.hint));
  }
  if (first.last_lines.empty()) {
    text += "  no output\n";
  } else {
    const size_t count = std::min(lines, first.last_lines.size());
    text += fmt::format("  last {} lines of output:\n", count);
    for (size_t i = first.last_lines.size() - count; i < first.last_lines.size(); ++i) {
      text += fmt::format("    | {}\n", printable(first.last_lines[i]));
    }
  }
  return text + heavy + "\n";
}

}  // namespace lockstep::launch
