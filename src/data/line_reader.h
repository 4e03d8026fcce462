// Lines of a text file of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"

namespace lockstep::data {

enum class LineEnd { kNewline, kNone, kMore };  // kNone: end of the file; kMore: the line continues

/// Splits bytes at \n; a preceding \r belongs to the line end, and a UTF-8 byte order mark at the
/// start is skipped. Used by one thread.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source);

  /// Replaces `line` with the next line, without its end. A line of more than `most` bytes is
  /// returned in parts of at most that size, split between code points. Returns false at the end of
  /// the file. A final \n is not followed by an empty line.
  bool next(std::string& line, LineEnd& end, size_t most);
  /// Number of the last returned line, from 1.
  int64_t number() const { return number_; }

 private:
  bool fill();

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;     // start of the unread part of buffer_
  size_t block_ = 4096;  // size of the next read; small files need no large buffer
  int64_t number_ = 0;
  bool inside_ = false;  // true if the last line ended with LineEnd::kMore
};

}  // namespace lockstep::data
