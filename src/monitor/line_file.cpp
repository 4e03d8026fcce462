// Writer of records. A resume finds the place to continue from the end of the file.
#include "monitor/line_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "base/log.h"

namespace lockstep::monitor {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLineBlock = uint64_t{64} << 10;  // bytes
constexpr uint64_t kMostCopied = uint64_t{64}
                                 << 20;  // longest end of a file that is set aside alone

/// Reader of a file's lines, last line first.
class LinesFromEnd {
 public:
  explicit LinesFromEnd(const File& file) : file_(file), begin_(file.size()), end_(begin_) {}

  /// Offset of the line that next() has returned; at first, the size of the file.
  uint64_t offset() const { return end_; }

  /// Returns the line before, with its newline if it has one. Returns nullopt at the beginning of
  /// the file, or if the line is longer than kLongestLine.
  std::optional<std::string_view> next() {
    text_.resize(static_cast<size_t>(end_ - begin_));
    while (end_ > 0) {
      // The last byte is the line's own newline.
      const size_t newline =
          text_.size() < 2 ? std::string::npos : text_.rfind('\n', text_.size() - 2);
      if (newline != std::string::npos || begin_ == 0) {
        const size_t start = newline == std::string::npos ? 0 : newline + 1;
        end_ = begin_ + start;
        return std::string_view(text_).substr(start);
      }
      if (text_.size() > kLongestLine) {
        break;
      }
      read_block_before();
    }
    return std::nullopt;
  }

 private:
  void read_block_before() {
    // Growing blocks, so that a long line is not moved once per block.
    const uint64_t bytes = std::min(begin_, std::max<uint64_t>(kLineBlock, text_.size()));
    std::string block(static_cast<size_t>(bytes), '\0');
    file_.read_at(begin_ - bytes, std::as_writable_bytes(std::span(block)));
    text_.insert(0, block);
    begin_ -= bytes;
  }

  const File& file_;
  std::string text_;  // bytes from begin_ to the end of the next line
  uint64_t begin_, end_;
};

/// Returns the "step" of a line, or nullopt if the line is damaged. A line after step `after`,
/// which is removed, is not read further than its step.
std::optional<int64_t> step_of(std::string_view line, int64_t after) {
  constexpr std::string_view kBegin = "{\"step\": ";
  int64_t step = 0;
  if (line.starts_with(kBegin)) {
    const char* const end = line.data() + line.size();
    const auto [rest, problem] = std::from_chars(line.data() + kBegin.size(), end, step);
    if (problem == std::errc() && rest < end && *rest == ',' && step > after) {
      return step;
    }
  }
  const nlohmann::json parsed = parse_json_line(line);
  const auto found = parsed.is_object() ? parsed.find("step") : parsed.end();
  if (found == parsed.end() || !found->is_number_integer()) {
    return std::nullopt;
  }
  return found->get<int64_t>();
}

/// End of a file, after the last line up to a step.
struct Rest {
  uint64_t begin = 0;
  bool is_damaged = false;  // contains a damaged line besides an incomplete last one
};

/// Returns nullopt if a line is too long.
std::optional<Rest> rest_after(const File& file, int64_t after) {
  LinesFromEnd lines(file);
  Rest rest{file.size()};
  while (const auto line = lines.next()) {
    if (line->ends_with('\n')) {  // otherwise incomplete: the writer was killed
      const auto step = step_of(line->substr(0, line->size() - 1), after);
      if (step && *step <= after) {
        return rest;
      }
      rest.is_damaged = rest.is_damaged || !step;
    }
    rest.begin = lines.offset();
  }
  return rest.begin == 0 ? std::optional(rest) : std::nullopt;
}

fs::path damaged_name(const fs::path& path) {
  fs::path name = path;
  name += ".damaged";
  return name;
}

void copy_from(const File& file, uint64_t begin, const fs::path& to) {
  File copy(to, File::Mode::kCreate);
  std::string block;
  for (uint64_t at = begin, size = file.size(); at < size; at += block.size()) {
    block.resize(static_cast<size_t>(std::min(kLineBlock, size - at)));
    file.read_at(at, std::as_writable_bytes(std::span(block)));
    copy.write_at(at - begin, std::as_bytes(std::span(block)));
  }
}

/// Removes the lines after a step. Returns false, without a change to the file, if its lines cannot
/// be found or their damaged rest cannot be set aside.
bool remove_after(File& file, int64_t after) {
  try {
    const std::optional<Rest> rest = rest_after(file, after);
    if (!rest || (rest->is_damaged && file.size() - rest->begin > kMostCopied)) {
      return false;
    }
    if (rest->is_damaged) {
      const fs::path aside = damaged_name(file.path());
      copy_from(file, rest->begin, aside);
      log_warning(
          "{} has damaged lines: it continues after its last line up to step {}, and the rest is "
          "in {}",
          file.path().string(),
          after,
          aside.filename().string());
    }
    file.resize(rest->begin);
    return true;
  } catch (const Error& error) {
    log_warning("{}", error.message());
    return false;
  }
}

}  // namespace

uint64_t end_of_lines(const File& file) {
  std::string block;
  for (uint64_t end = file.size(); end > 0; end -= block.size()) {
    block.resize(static_cast<size_t>(std::min(kLineBlock, end)));
    file.read_at(end - block.size(), std::as_writable_bytes(std::span(block)));
    if (const size_t newline = block.rfind('\n'); newline != std::string::npos) {
      return end - block.size() + newline + 1;
    }
  }
  return 0;
}

LineFile LineFile::at_end(const fs::path& path) {
  LineFile lines({path, fs::exists(path) ? File::Mode::kWrite : File::Mode::kCreate});
  if (end_of_lines(lines.file_) != lines.file_.size()) {
    lines.append("");
  }
  return lines;
}

LineFile LineFile::after_step(const fs::path& path, int64_t after) {
  if (after <= 0 || !fs::exists(path)) {
    return LineFile({path, File::Mode::kCreate});
  }
  File file(path, File::Mode::kWrite);
  if (remove_after(file, after)) {
    return LineFile(std::move(file));
  }
  const fs::path aside = damaged_name(path);
  if (std::rename(path.c_str(), aside.c_str()) != 0) {
    throw system_error(ErrorKind::kCheckpoint, "rename", path);
  }
  log_warning(
      "{} is damaged: it is now {}, and a new file begins after step {}",
      path.string(),
      aside.filename().string(),
      after);
  return LineFile({path, File::Mode::kCreate});
}

void LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  const uint64_t end = file_.size();
  try {
    file_.write_at(end, std::as_bytes(std::span(text)));
  } catch (const Error&) {
    if (file_.size() > end) {
      file_.resize(end);
    }
    throw;
  }
}

}  // namespace lockstep::monitor
