// Texts that begin alike, so that what they share is computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// A text, of whose tokens those from `begin` on are to be judged.
struct JudgedText {
  std::vector<int64_t> ids;
  size_t begin = 0;
};

/// Texts as a tree of tokens: a token of several texts that have the same tokens before it is there
/// once. A token stands before all that follow it in any text, and next to them.
struct TokenTree {
  // Of each token of the tree:
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;   // in its texts
  std::vector<int64_t> parents;     // the token before it in its texts; -1: it is their first
  std::vector<int64_t> seen_until;  // one behind the last token that follows it, or is it
  /// Of each text: where in the tree its tokens are.
  std::vector<std::vector<int64_t>> paths;
};

/// Of those `members` of the texts, in this order; they need not begin alike.
TokenTree tree_of(std::span<const JudgedText> texts, std::span<const size_t> members);

/// The numbers of all texts, those that a tree is worth making of together: each shares half of
/// what is not judged of it, or more, with the one before it. Trees have at most `most` tokens, but
/// where one text has more. A function of the texts alone.
std::vector<std::vector<size_t>> alike(std::span<const JudgedText> texts, int64_t most);

}  // namespace lockstep::data
