// Tests of BPE merging, the piece cache and the vocabulary.
#include "text/models/bpe.h"

#include <chrono>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/models/merger.h"
#include "text/models/piece_cache.h"

namespace lockstep::text {
namespace bpe_test {

/// Reference implementation of the merging in the paper.
std::vector<int32_t> merge_slowly(const PairMap& merges, std::vector<int32_t> symbols) {
  while (true) {
    const PairMap::Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const PairMap::Merge* found = merges.find(symbols[i], symbols[i + 1]);
      if (found != nullptr && (best == nullptr || found->rank < best->rank)) {
        best = found;
        place = i;
      }
    }
    if (best == nullptr) {
      return symbols;
    }
    symbols[place] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(Merger, EqualsTheSlowWayOnShortAndLongWords) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto letters = static_cast<int32_t>(2 + random() % 4);
    std::set<std::pair<int32_t, int32_t>> seen;
    std::vector<int32_t> ids_by_rank;
    PairMap merges(40);
    for (uint32_t rank = 0; rank < 40; ++rank) {
      const auto known = static_cast<uint32_t>(letters) + rank;
      const std::pair<int32_t, int32_t> pair(
          static_cast<int32_t>(random() % known), static_cast<int32_t>(random() % known));
      ids_by_rank.push_back(static_cast<int32_t>(known));
      if (seen.insert(pair).second) {
        merges.insert(pair.first, pair.second, {rank, static_cast<int32_t>(known)});
      }
    }
    Merger merger;
    for (const size_t length : {1U, 2U, 3U, 17U, 48U, 49U, 300U}) {
      std::vector<int32_t> symbols(length);
      for (int32_t& symbol : symbols) {
        symbol = static_cast<int32_t>(random() % static_cast<uint32_t>(letters));
      }
      const std::vector<int32_t> expected = merge_slowly(merges, symbols);
      merger.merge(merges, ids_by_rank, symbols);
      ASSERT_EQ(symbols, expected) << length;
    }
  }
}

TEST(PieceCache, RemembersAndForgets) {
  PieceCache cache;
  const std::string text = "abcdefghijklmnopqrst";
  const char* end = text.data() + text.size();
  for (size_t length = 1; length <= PieceCache::kShortPiece; ++length) {
    const std::string_view piece = std::string_view(text).substr(0, length);
    const PieceCache::Key key = PieceCache::key_of(piece, end);
    // The key does not depend on the readable bytes after the piece.
    EXPECT_EQ(key, PieceCache::key_of(piece, piece.data() + piece.size()));
    EXPECT_EQ(cache.find(key), nullptr);
    cache.insert(key, std::vector<int32_t>{static_cast<int32_t>(length), 5});
    ASSERT_NE(cache.find(key), nullptr);
    EXPECT_EQ(cache.find(key)->ids[0], static_cast<int32_t>(length));
    EXPECT_EQ(cache.find(key)->count, 2U);
  }
  cache.insert_long(text, std::vector<int32_t>(9, 1));
  ASSERT_NE(cache.find_long(text), nullptr);
  EXPECT_EQ(cache.find_long(text)->size(), 9U);
  cache.insert_long(std::string(300, 'x'), std::vector<int32_t>(9, 1));
  EXPECT_EQ(cache.find_long(std::string(300, 'x')), nullptr);
}

BpeDescription describe(
    std::vector<std::pair<std::string, int64_t>> tokens,
    std::vector<std::pair<std::string, std::string>> merges) {
  BpeDescription description;
  description.vocabulary = Vocabulary(std::move(tokens), "t.json: model.vocab");
  description.merges = std::move(merges);
  return description;
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view piece) {
  const auto scratch = model.make_scratch();
  std::vector<int32_t> ids;
  model.encode(piece, std::span(&piece, 1), *scratch, ids);
  std::vector<int32_t> again;
  model.encode(piece, std::span(&piece, 1), *scratch, again);
  EXPECT_EQ(ids, again) << "a piece that is remembered encodes otherwise";
  return ids;
}

TEST(Bpe, TreatsUnknownCharactersAsAsked) {
  BpeDescription description =
      describe({{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}, {{"a", "b"}});
  EXPECT_EQ(
      encode(BpeModel(description, BpeModel::Pieces::kText, "t"), "xabyyb"),
      (std::vector<int32_t>{3, 2}));
  description.unknown_token = "<unk>";
  EXPECT_EQ(
      encode(BpeModel(description, BpeModel::Pieces::kText, "t"), "xabyyb"),
      (std::vector<int32_t>{0, 3, 0, 0, 2}));
  description.fuse_unknown = true;
  EXPECT_EQ(
      encode(BpeModel(description, BpeModel::Pieces::kText, "t"), "xabyyb"),
      (std::vector<int32_t>{0, 3, 0, 2}));
  description.unknown_token = "<lost>";
  EXPECT_THROW(encode(BpeModel(description, BpeModel::Pieces::kText, "t"), "x"), Error);
}

TEST(Bpe, FallsBackToBytes) {
  BpeDescription description = describe({{"<0xC3>", 0}, {"<0xA9>", 1}, {"a", 2}, {"<unk>", 3}}, {});
  description.byte_fallback = true;
  description.unknown_token = "<unk>";
  const BpeModel model(description, BpeModel::Pieces::kText, "t");
  EXPECT_EQ(encode(model, "a\u00e9"), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(
      encode(model, "a\u00e8"),
      (std::vector<int32_t>{2, 3}));  // not all of its bytes are in the vocabulary
  EXPECT_FALSE(BpeModel::can_take_bytes(description));
}

TEST(Bpe, PutsPrefixesAndSuffixesOnCharacters) {
  BpeDescription description =
      describe({{"a", 0}, {"##b", 1}, {"##c</w>", 2}, {"a</w>", 3}, {"ab", 4}}, {{"a", "##b"}});
  description.continuing_prefix = "##";
  description.end_of_word_suffix = "</w>";
  const BpeModel model(description, BpeModel::Pieces::kText, "t");
  EXPECT_EQ(encode(model, "abc"), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(encode(model, "a"), (std::vector<int32_t>{3}));
}

TEST(Bpe, IgnoresMergesOfWholeTokens) {
  BpeDescription description = describe(
      {{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}, {"\u0120a", 4}, {"\u0120", 5}}, {{"a", "b"}});
  description.ignore_merges = true;
  const BpeModel model(description, BpeModel::Pieces::kBytes, "t");
  EXPECT_EQ(encode(model, "aba"), (std::vector<int32_t>{3}));
  EXPECT_EQ(encode(model, " a"), (std::vector<int32_t>{4}));
  EXPECT_EQ(encode(model, "abab"), (std::vector<int32_t>{2, 2}));
}

TEST(Bpe, NamesAMergeThatDoesNotFit) {
  try {
    BpeModel(
        describe({{"a", 0}, {"b", 1}}, {{"a", "b"}}),
        BpeModel::Pieces::kText,
        "t.json: model.merges");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        error.message().find("t.json: model.merges: merge 0 joins \"a\" and \"b\", but \"ab\""),
        std::string::npos)
        << error.what();
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Vocabulary, RejectsWhatCannotBe) {
  EXPECT_THROW(Vocabulary({{"a", -1}}, "t"), Error);
  EXPECT_THROW(Vocabulary({{"a", kMaximumTokenId + 1}}, "t"), Error);
  EXPECT_THROW(Vocabulary({{"a", int64_t{1} << 40}}, "t"), Error);
  EXPECT_THROW(Vocabulary({{"a", 0}, {"b", 0}}, "t"), Error);
  EXPECT_THROW(Vocabulary({{"a", 0}, {"a", 1}}, "t"), Error);
  const Vocabulary vocabulary({{"", 4}, {"b", 1}}, "t");
  EXPECT_EQ(vocabulary.find(""), 4);
  EXPECT_EQ(vocabulary.token(4), "");
  EXPECT_EQ(vocabulary.token(2), std::nullopt);
  EXPECT_EQ(vocabulary.token(-1), std::nullopt);
  EXPECT_EQ(vocabulary.highest_id(), 4);
  EXPECT_EQ(Vocabulary().find("a"), std::nullopt);
}

TEST(Bpe, IsQuickOnAMillionEqualLetters) {
  BpeDescription description =
      describe({{"a", 0}, {"aa", 1}, {"aaaa", 2}}, {{"a", "a"}, {"aa", "aa"}});
  const BpeModel model(description, BpeModel::Pieces::kBytes, "t");
  const auto scratch = model.make_scratch();
  const std::string text(1'000'000, 'a');
  const std::string_view piece = text;
  std::vector<int32_t> ids;
  const auto start = std::chrono::steady_clock::now();
  model.encode(text, std::span(&piece, 1), *scratch, ids);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(ids, std::vector<int32_t>(250'000, 2));
}

}  // namespace bpe_test
}  // namespace lockstep::text
