// Tokens added to a model's vocabulary: special tokens and user-defined words. They are searched
// for before any other processing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/models/fields.h"
#include "text/models/model.h"
#include "text/stages/normalizer.h"

namespace lockstep::text {

struct AddedToken {
  std::string content;
  bool single_word = false;  // matches only if adjacent characters are not word characters
  bool strip_left = false;   // also consumes white space on the left
  bool strip_right = false;
  bool normalized = true;  // normalized form is searched for in normalized text
  bool special = false;    // can be omitted from decoded text
};

/// Span of text, or an added token.
struct Segment {
  std::string_view text;
  std::optional<int32_t> id;
};

/// Multi-string search. Returns the leftmost match and, among several, the longest.
class TokenFinder {
 public:
  /// Adds a string. An empty string never matches.
  void add(std::string_view text, int32_t id);
  bool empty() const { return nodes_.size() <= 1; }

  struct Match {
    size_t begin, end;
    int32_t id;
  };
  /// Returns the first match that starts at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::map<unsigned char, uint32_t> children;
    int32_t id = -1;
  };
  std::vector<Node> nodes_{1};
};

class AddedTokens {
 public:
  /// Adds a token. Must be called in file order. The token gets its id in the model's vocabulary if
  /// it has one, otherwise the next free id. Throws Error with `place` if `id` differs from that.
  void add(
      const Model& model,
      const Normalizer* normalizer,
      AddedToken token,
      std::optional<int64_t> id,
      const std::string& place);

  /// Splits `text` at added tokens. If `normalized` is false, uses tokens matched before
  /// normalization, otherwise tokens matched after it. Special tokens are matched only if
  /// `specials` is true.
  void split(
      std::string_view text, bool normalized, bool specials, std::vector<Segment>& segments) const;

  std::optional<int32_t> find(std::string_view content) const;
  /// Returns the string passed to the decoder for an added token (normalized if the token is
  /// matched in normalized text). Returns null if `id` is not an added token.
  const std::string* decoded(int32_t id) const;
  const AddedToken* token(int32_t id) const;
  bool is_special(std::string_view token) const { return specials_.contains(std::string(token)); }
  int32_t highest_id() const { return tokens_.empty() ? -1 : tokens_.rbegin()->first; }
  const std::map<int32_t, AddedToken>& tokens() const { return tokens_; }

 private:
  std::map<int32_t, AddedToken> tokens_;
  std::map<int32_t, std::string> decoded_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_set<std::string> specials_;
  TokenFinder raw_, normalized_;
};

}  // namespace lockstep::text
