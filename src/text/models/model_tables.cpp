// Fast parser for vocabulary and merges of a tokenizer.json. Builds no document tree.
#include "text/models/model_tables.h"

#include <charconv>

#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

/// Forward-only JSON reader. Read functions return false on unexpected input, and the caller then
/// abandons the fast path.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  const char* place() const { return at_; }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) {
      return false;
    }
    ++at_;
    return true;
  }
  bool next_is(char wanted) {
    skip_space();
    return at_ != end_ && *at_ == wanted;
  }
  bool string(std::string& out);
  bool integer(int64_t& out) {
    skip_space();
    const auto [after, error] = std::from_chars(at_, end_, out);
    const bool whole = error == std::errc() &&
                       (after == end_ || (*after != '.' && *after != 'e' && *after != 'E'));
    at_ = after;
    return whole;
  }
  /// Skips any value without decoding its strings.
  bool skip_value();
  /// Calls member(key) at each value of an object. The callback must read the value.
  template <class Member>
  bool object(Member&& member);
  /// Calls element() at each value of a list. The callback must read the value.
  template <class Element>
  bool list(Element&& element);

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
      ++at_;
    }
  }
  bool escape(std::string& out);
  bool code_unit(uint32_t& unit);
  bool skip_string();

  const char* at_;
  const char* end_;
};

template <class Member>
bool Cursor::object(Member&& member) {
  if (!take('{')) {
    return false;
  }
  if (take('}')) {
    return true;
  }
  std::string key;
  do {
    if (!string(key) || !take(':') || !member(key)) {
      return false;
    }
  } while (take(','));
  return take('}');
}

template <class Element>
bool Cursor::list(Element&& element) {
  if (!take('[')) {
    return false;
  }
  if (take(']')) {
    return true;
  }
  do {
    if (!element()) {
      return false;
    }
  } while (take(','));
  return take(']');
}

bool Cursor::string(std::string& out) {
  if (!take('"')) {
    return false;
  }
  out.clear();
  while (at_ != end_) {
    const char* const run = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) {
      ++at_;
    }
    out.append(run, at_);
    if (at_ == end_) {
      return false;
    }
    const char stop = *at_++;
    if (stop == '"') {
      return true;
    }
    if (stop != '\\' || !escape(out)) {
      return false;
    }
  }
  return false;
}

bool Cursor::code_unit(uint32_t& unit) {
  if (end_ - at_ < 4) {
    return false;
  }
  const auto [after, error] = std::from_chars(at_, at_ + 4, unit, 16);
  const bool whole = error == std::errc() && after == at_ + 4;
  at_ = after;
  return whole;
}

bool Cursor::escape(std::string& out) {
  if (at_ == end_) {
    return false;
  }
  switch (const char kind = *at_++; kind) {
    case '"':
    case '\\':
    case '/':
      out.push_back(kind);
      return true;
    case 'b':
      out.push_back('\b');
      return true;
    case 'f':
      out.push_back('\f');
      return true;
    case 'n':
      out.push_back('\n');
      return true;
    case 'r':
      out.push_back('\r');
      return true;
    case 't':
      out.push_back('\t');
      return true;
    case 'u':
      break;
    default:
      return false;
  }
  uint32_t unit = 0;
  if (!code_unit(unit)) {
    return false;
  }
  if (unit >= 0xD800 && unit < 0xE000) {
    uint32_t low = 0;
    if (unit >= 0xDC00 || end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') {
      return false;
    }
    at_ += 2;
    if (!code_unit(low) || low < 0xDC00 || low >= 0xE000) {
      return false;
    }
    unit = 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00));
  }
  append_code_point(out, unit);
  return true;
}

bool Cursor::skip_string() {
  ++at_;
  while (at_ != end_ && *at_ != '"') {
    at_ += *at_ == '\\' && end_ - at_ > 1 ? 2 : 1;
  }
  return take('"');
}

bool Cursor::skip_value() {
  int depth = 0;
  do {
    skip_space();
    if (at_ == end_) {
      return false;
    }
    const char c = *at_;
    if (c == '"') {
      if (!skip_string()) {
        return false;
      }
    } else {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at_;
      if (depth == 0 && c != '}' && c != ']') {  // number, true, false or null
        while (at_ != end_ && *at_ != ',' && *at_ != '}' && *at_ != ']' && *at_ > ' ') {
          ++at_;
        }
      }
    }
  } while (depth > 0);
  return depth == 0;
}

bool read_ids(Cursor& cursor, TokenIds& ids) {
  return cursor.object([&](const std::string& token) {
    int64_t id = 0;
    const bool read = cursor.integer(id);
    ids.emplace_back(token, id);
    return read;
  });
}

/// Splits "a b", which must contain exactly one space.
bool split_merge(const std::string& text, MergePairs& merges) {
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos ||
      text.starts_with("#version")) {
    return false;
  }
  merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  return true;
}

bool read_merge_table(Cursor& cursor, MergePairs& merges) {
  std::string left;
  std::string right;
  return cursor.list([&] {
    if (!cursor.next_is('[')) {
      return cursor.string(left) && split_merge(left, merges);
    }
    const bool read = cursor.take('[') && cursor.string(left) && cursor.take(',') &&
                      cursor.string(right) && cursor.take(']');
    merges.emplace_back(left, right);
    return read;
  });
}

}  // namespace

std::optional<SplitTokenizer> split_tokenizer(std::string_view json) {
  if (valid_utf8_prefix(json) != json.size()) {
    return std::nullopt;
  }
  SplitTokenizer split;
  const char* copied = json.data();
  int tables = 0;
  Cursor cursor(json);
  const auto cut_out = [&](auto&& read, auto& table) {
    split.rest.append(copied, cursor.place());
    split.rest += "null";
    ++tables;
    const bool is_read = read(cursor, table);
    copied = cursor.place();
    return is_read;
  };
  const bool is_read = cursor.object([&](const std::string& key) {
    if (key != "model" || !cursor.next_is('{')) {
      return cursor.skip_value();
    }
    return cursor.object([&](const std::string& part) {
      if (part == "vocab" && cursor.next_is('{')) {
        return cut_out(read_ids, split.tables.vocabulary);
      }
      if (part == "merges" && cursor.next_is('[')) {
        return cut_out(read_merge_table, split.tables.merges);
      }
      return cursor.skip_value();
    });
  });
  if (!is_read || !cursor.at_end() || tables != 2) {
    return std::nullopt;
  }
  split.rest.append(copied, json.data() + json.size());
  return split;
}

std::optional<TokenIds> read_token_ids(std::string_view json) {
  TokenIds ids;
  Cursor cursor(json);
  if (valid_utf8_prefix(json) != json.size() || !read_ids(cursor, ids) || !cursor.at_end()) {
    return std::nullopt;
  }
  return ids;
}

}  // namespace lockstep::text
