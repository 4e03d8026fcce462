// Splits a byte stream into lines.
#include "data/line_reader.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep::data {
namespace {

constexpr size_t kMostBlock = size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns the position at which an overlong line is split. It is not inside a code point and not
/// between \r and \n.
size_t cut_of(std::string_view line) {
  size_t cut = line.size();
  while (cut > 0 && line.size() - cut < 3 &&
         (static_cast<unsigned char>(line[cut - 1]) & 0xC0) == 0x80) {
    --cut;
  }
  if (cut > 0 && (static_cast<unsigned char>(line[cut - 1]) & 0xC0) == 0xC0) {
    --cut;  // keep the lead byte together with its continuation bytes
  } else {
    cut = line.size();  // the line ends with ASCII or is not UTF-8
  }
  if (cut > 0 && line[cut - 1] == '\r') {
    --cut;
  }
  return cut == 0 ? line.size() : cut;
}

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {
  while (buffer_.size() < kByteOrderMark.size() && fill()) {
  }
  if (buffer_.starts_with(kByteOrderMark)) {
    begin_ = kByteOrderMark.size();
  }
}

bool LineReader::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t old = buffer_.size();
  buffer_.resize(old + block_);
  block_ = std::min(2 * block_, kMostBlock);
  const size_t count = source_->read(std::span(buffer_).subspan(old));
  buffer_.resize(old + count);
  return count > 0;
}

bool LineReader::next(std::string& line, LineEnd& end, size_t most) {
  if (begin_ == buffer_.size() && !fill()) {
    return false;
  }
  number_ += inside_ ? 0 : 1;
  size_t scanned = 0;
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    size_t size = std::min(rest.find('\n', scanned), rest.size());
    if (size < rest.size() && (size <= most || (size == most + 1 && rest[most] == '\r'))) {
      line.assign(rest.substr(0, size > 0 && rest[size - 1] == '\r' ? size - 1 : size));
      end = LineEnd::kNewline;
      begin_ += size + 1;
      break;
    }
    if (rest.size() > most + 1) {
      size = cut_of(rest.substr(0, most));
      line.assign(rest.substr(0, size));
      end = LineEnd::kMore;
      begin_ += size;
      break;
    }
    scanned = rest.size();
    if (!fill()) {
      line.assign(buffer_, begin_);
      end = LineEnd::kNone;
      begin_ = buffer_.size();
      break;
    }
  }
  inside_ = end == LineEnd::kMore;
  return true;
}

}  // namespace lockstep::data
