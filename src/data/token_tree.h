// Trees of texts with common prefixes, whose shared tokens are computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Text whose tokens from `begin` on are scored.
struct JudgedText {
  std::vector<int64_t> ids;
  size_t begin = 0;
};

/// Token tree of several texts. A token with the same preceding tokens in several texts occurs
/// once. Each token precedes all its successors, which are contiguous.
struct TokenTree {
  // For each token of the tree:
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;   // position in the text
  std::vector<int64_t> parents;     // index of the preceding token; -1: first token
  std::vector<int64_t> seen_until;  // one past the last token that follows it
  /// For each text: the indices of its tokens in the tree.
  std::vector<std::vector<int64_t>> paths;
};

/// Builds the tree of the `members` of the texts, in this order; they need not share a prefix.
TokenTree tree_of(std::span<const JudgedText> texts, std::span<const size_t> members);

/// Groups texts for which a common tree saves work: each shares at least half of its unscored
/// tokens with the previous one. A tree has at most `most` tokens unless a single text is longer.
/// Depends only on the texts.
std::vector<std::vector<size_t>> alike(std::span<const JudgedText> texts, int64_t most);

}  // namespace lockstep::data
