// Vocabulary of a model. Maps tokens to ids and back, in flat memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

/// Maximum accepted id. Table sizes depend on the largest id, so this limit protects against
/// damaged and malicious files. No known tokenizer reaches it.
inline constexpr int64_t kMaximumTokenId = (1 << 24) - 1;

/// Immutable map between tokens and ids. Tokens and ids are unique; ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Throws Error if an id is out of range or a token or id occurs twice. `source` is the file and
  /// key for messages.
  Vocabulary(std::vector<std::pair<std::string, int64_t>> tokens, const std::string& source);

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  int64_t size() const { return size_; }
  /// Returns the highest id, or -1 if the vocabulary is empty.
  int32_t highest_id() const { return static_cast<int32_t>(places_.size()) - 1; }

 private:
  struct Place {
    uint32_t begin = 0;
    int32_t length = -1;  // -1 for an unused id
  };
  std::string_view at(const Place& place) const {
    return {text_.data() + place.begin, static_cast<size_t>(place.length)};
  }
  std::optional<int32_t> insert(std::string_view token, int32_t id);

  std::string text_;
  std::vector<Place> places_;  // indexed by id
  std::vector<int32_t>
      slots_;  // open-addressing hash table, -1 if empty; the size is a power of two
  int64_t size_ = 0;
};

}  // namespace lockstep::text
