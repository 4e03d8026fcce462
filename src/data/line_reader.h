// Reads the lines of text files of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"

namespace lockstep::data {

enum class LineEnd { kNewline, kNone, kMore };  // kNone: end of file; kMore: the line continues

/// Splits bytes at \n. A \r before \n is part of the line end. A UTF-8 byte order mark at the start
/// is skipped. Not thread-safe.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source);

  /// Replaces `line` by the next line, without its line end. A line of more than `most` bytes is
  /// returned in parts of at most this size, split between code points. Returns false at the end of
  /// the file. No empty line is returned after a final \n.
  bool next(std::string& line, LineEnd& end, size_t most);
  /// Returns the number of the last line returned, starting at 1.
  int64_t number() const { return number_; }

 private:
  bool fill();

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;     // start of the unread part of buffer_
  size_t block_ = 4096;  // size of the next read; small files need no large buffer
  int64_t number_ = 0;
  bool inside_ = false;  // the last line returned ended with LineEnd::kMore
};

}  // namespace lockstep::data
