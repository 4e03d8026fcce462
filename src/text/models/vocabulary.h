// The tokens of a model: string to id and back, in flat memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

/// No tokenizer has ids beyond this; a file that says so is damaged or hostile, and tables are
/// sized by ids.
inline constexpr int64_t kMaximumTokenId = (1 << 24) - 1;

/// Immutable. Each token and each id occurs once; ids may have holes.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// `source` names the file and key for the Error of an id that is out of range or taken twice.
  Vocabulary(std::vector<std::pair<std::string, int64_t>> tokens, const std::string& source);

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  int64_t size() const { return size_; }
  /// -1 where there are no tokens.
  int32_t highest_id() const { return static_cast<int32_t>(places_.size()) - 1; }

 private:
  struct Place {
    uint32_t begin = 0;
    int32_t length = -1;  // -1: a hole
  };
  std::string_view at(const Place& place) const {
    return {text_.data() + place.begin, static_cast<size_t>(place.length)};
  }
  std::optional<int32_t> insert(std::string_view token, int32_t id);

  std::string text_;
  std::vector<Place> places_;   // by id
  std::vector<int32_t> slots_;  // open addressing by hash, -1 empty; a power of two
  int64_t size_ = 0;
};

}  // namespace lockstep::text
