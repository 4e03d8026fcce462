// Follows a growing file. Reads instead of mapping it: a truncated mapping would end the reader.
#include "watch/record/growing_file.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/file.h"

namespace lockstep::watch {
namespace {

constexpr size_t kRememberedBytes = 256;              // bytes at the end of the data read
constexpr uint64_t kReadAtOnce = uint64_t{64} << 20;  // bytes; a longer line is passed in parts

std::string text_at_offset(const File& file, uint64_t at, uint64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(at, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

bool GrowingFile::read(
    const std::function<void()>& restart, const std::function<void(std::string_view lines)>& take) {
  std::error_code none;
  std::optional<File> file;
  if (std::filesystem::exists(path_, none)) {
    file.emplace(path_, File::Mode::kRead, ErrorKind::kData);
  }
  const uint64_t size = file ? file->size() : 0;
  bool changed = false;
  if (size < end_ ||
      (end_ > 0 && text_at_offset(*file, end_ - last_.size(), last_.size()) != last_)) {
    end_ = 0;
    last_.clear();
    restart();
    changed = true;
  }
  while (end_ < size) {
    const std::string text = text_at_offset(*file, end_, std::min(kReadAtOnce, size - end_));
    size_t whole = text.rfind('\n') + 1;
    if (whole == 0 && text.size() < kReadAtOnce) {
      break;
    }
    whole = whole == 0 ? text.size() : whole;
    const std::string_view lines = std::string_view(text).substr(0, whole);
    take(lines);
    end_ += whole;
    last_ = lines.substr(whole - std::min(whole, kRememberedBytes));
    changed = true;
  }
  return changed;
}

}  // namespace lockstep::watch
