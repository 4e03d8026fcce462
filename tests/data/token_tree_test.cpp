// Tests of merging texts with common prefixes into a token tree.
#include "data/token_tree.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace token_tree_test {

using Ids = std::vector<int64_t>;

const std::vector<JudgedText> kTexts{
    {{1, 2, 3, 7, 8}, 3},
    {{1, 2, 3, 7, 9, 9}, 3},
    {{1, 2, 4}, 2},
    {{5}, 0},
    {{1, 2, 3}, 2},
    {{}, 0}};

TEST(TokenTree, ATextIsItsPathAndATokenIsSeenByWhatFollowsIt) {
  const std::vector<size_t> members{1, 0, 2, 4, 3, 5};
  const TokenTree tree = tree_of(kTexts, members);
  EXPECT_EQ(tree.ids.size(), 9);  // 1 2 3 7 8, 9 9, 4, 5: 9 of 18 tokens
  ASSERT_EQ(tree.paths.size(), members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    const Ids& path = tree.paths[i];
    Ids ids;
    for (size_t at = 0; at < path.size(); ++at) {
      const auto token = static_cast<size_t>(path[at]);
      ids.push_back(tree.ids[token]);
      EXPECT_EQ(tree.positions[token], at);
      EXPECT_EQ(tree.parents[token], at == 0 ? -1 : path[at - 1]);
    }
    EXPECT_EQ(ids, kTexts[members[i]].ids);
    // The last token of a path attends to exactly that path.
    for (int64_t seen = 0; !path.empty() && seen < std::ssize(tree.ids); ++seen) {
      const bool is_seen =
          seen <= path.back() && path.back() < tree.seen_until[static_cast<size_t>(seen)];
      EXPECT_EQ(is_seen, std::ranges::find(path, seen) != path.end()) << seen;
    }
  }
}

TEST(TokenTree, OfNoTokens) {
  const TokenTree tree = tree_of(kTexts, std::vector<size_t>{5});
  EXPECT_TRUE(tree.ids.empty());
  EXPECT_EQ(tree.paths, std::vector<Ids>{{}});
}

TEST(TokenTree, TextsThatShareHalfOfTheirPromptsAreAlike) {
  const std::vector<JudgedText> texts{
      {{1, 2, 3, 4, 5}, 4}, {{9, 9}, 1}, {{1, 2, 3, 4, 6}, 4}, {{1, 2, 0}, 2}, {{1, 8, 8, 8}, 3}};
  const auto groups = alike(texts, 100);
  EXPECT_EQ(groups, (std::vector<std::vector<size_t>>{{3, 0, 2}, {4}, {1}}));
  // At most seven tokens per group: the third text adds two new ones.
  EXPECT_EQ(alike(texts, 6), (std::vector<std::vector<size_t>>{{3, 0}, {2}, {4}, {1}}));
  EXPECT_EQ(alike(texts, 7), groups);
  EXPECT_TRUE(alike({}, 5).empty());
}

}  // namespace token_tree_test
}  // namespace lockstep::data
