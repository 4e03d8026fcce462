// Lines of a text file, however long the file is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"

namespace lockstep::data {

enum class LineEnd {
  kNewline,
  kNone,
  kMore
};  // kNone: the file ends here; kMore: the line goes on

/// Splits bytes at \n; \r before it belongs to the line end, and a UTF-8 byte order mark at the
/// start is left out. One thread.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source);

  /// Replaces `line` with the next line, without its end. A line of more than `most` bytes comes in
  /// parts of at most that many, between code points; false at the end of the file. A file that
  /// ends in \n has no empty line after it.
  bool next(std::string& line, LineEnd& end, size_t most);
  /// The number of the line that came last, from 1.
  int64_t number() const { return number_; }

 private:
  bool fill();

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;     // what of buffer_ is still to come
  size_t block_ = 4096;  // what is read next: a short file makes no long buffer
  int64_t number_ = 0;
  bool inside_ = false;  // the last line had LineEnd::kMore
};

}  // namespace lockstep::data
