// Trees of texts with common prefixes. The tokens of a prefix are computed only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Text of which the tokens from `begin` on are scored.
struct JudgedText {
  std::vector<int64_t> ids;
  size_t begin = 0;
};

/// Token tree of several texts. Texts with a common prefix share its tokens. Each token precedes
/// all its successors, and these are contiguous.
struct TokenTree {
  // For each token of the tree:
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;   // position in the text
  std::vector<int64_t> parents;     // index of the preceding token; -1: first token
  std::vector<int64_t> seen_until;  // one past the last token that continues this one
  /// For each text: the indices of its tokens in the tree.
  std::vector<std::vector<int64_t>> paths;
};

/// Builds the tree of the texts in `members`, in this order. They need not have a common prefix.
TokenTree tree_of(std::span<const JudgedText> texts, std::span<const size_t> members);

/// Divides the texts into groups for which a common tree saves computation: each text shares at
/// least half of its unscored tokens with the previous one. A tree has at most `most` tokens unless
/// a single text is longer. The result depends only on the texts.
std::vector<std::vector<size_t>> alike(std::span<const JudgedText> texts, int64_t most);

}  // namespace lockstep::data
