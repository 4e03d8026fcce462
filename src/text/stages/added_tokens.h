// Tokens that were added to a model's vocabulary: special ones, and words of the user's. They are
// found in the text before anything else is done to it.
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
  bool single_word = false;  // only where no word character is its neighbour
  bool strip_left = false;   // takes the white space on its left
  bool strip_right = false;
  bool normalized = true;  // found in the normalized text, by its own normalized form
  bool special = false;    // left out by decoding on request
};

/// A stretch of text, or an added token in its place.
struct Segment {
  std::string_view text;
  std::optional<int32_t> id;
};

/// Finds strings in text, the leftmost first and the longest of those.
class TokenFinder {
 public:
  /// An empty string is never found.
  void add(std::string_view text, int32_t id);
  bool empty() const { return nodes_.size() <= 1; }

  struct Match {
    size_t begin, end;
    int32_t id;
  };
  /// The first match that begins at `from` or later.
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
  /// In the order in which they are added: a token that the model has takes its id there, another
  /// one the next free id. An `id` that differs from that is an Error that names `place`.
  void add(
      const Model& model,
      const Normalizer* normalizer,
      AddedToken token,
      std::optional<int64_t> id,
      const std::string& place);

  /// Cuts `text` at the added tokens that are looked for before normalization, or after it.
  /// `specials`: whether special tokens are looked for.
  void split(
      std::string_view text, bool normalized, bool specials, std::vector<Segment>& segments) const;

  std::optional<int32_t> find(std::string_view content) const;
  /// The token that a decoder is given (normalized, where it was found normalized), if `id` is an
  /// added one.
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
