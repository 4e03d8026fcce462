// Tests of sequence views over token datasets.
#include "data/sequences.h"

#include <numeric>

#include "data_testing.h"

namespace lockstep::data {
namespace sequences_test {

struct Row {
  std::vector<int64_t> ids, labels;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const SequenceView& view) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < view.size(); ++i) {
    Row row{std::vector<int64_t>(static_cast<size_t>(view.length())), {}};
    row.labels = row.ids;
    const auto count = static_cast<size_t>(view.read(i, row.ids, row.labels));
    EXPECT_EQ(view.tokens(i), static_cast<int64_t>(count));
    row.ids.resize(count);
    row.labels.resize(count);
    rows.push_back(row);
  }
  return rows;
}

std::vector<int32_t> run(int32_t begin, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

TEST(Sequences, PackedBlocksLoseNothing) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(
      write_tokens(folder, {{{1, 2, 3, 9}}, {{4, 9}}, {{5, 6, 9}, 2}, {{7, 9}, 1}}));
  EXPECT_EQ(
      rows_of(SequenceView(set, 4)),
      (std::vector<Row>{
          {{1, 2, 3, 9}, {1, 2, 3, 9}},
          {{4, 9, 5, 6}, {4, 9, -100, -100}},
          {{9, 7, 9}, {9, -100, 9}}}));
  EXPECT_EQ(
      rows_of(SequenceView(set, 100)),
      (std::vector<Row>{
          {{1, 2, 3, 9, 4, 9, 5, 6, 9, 7, 9}, {1, 2, 3, 9, 4, 9, -100, -100, 9, -100, 9}}}));
  for (int64_t length = 2; length < 15; ++length) {
    std::vector<int64_t> joined;
    for (const Row& row : rows_of(SequenceView(set, length))) {
      joined.insert(joined.end(), row.ids.begin(), row.ids.end());
    }
    EXPECT_EQ(joined, (std::vector<int64_t>{1, 2, 3, 9, 4, 9, 5, 6, 9, 7, 9})) << length;
  }
}

TEST(Sequences, DocumentsFitTogetherAndAreToldApart) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(write_tokens(
      folder, {{{1, 2, 9}, 1}, {{3, 4, 5, 9}, 2}, {{6, 9}}, {run(10, 7)}, {{7, 8, 9}, 3}, {{9}}}));
  const SequenceView view(set, 5, Packing::kDocuments);
  EXPECT_EQ(
      rows_of(view),
      (std::vector<Row>{
          {{1, 2, 9, 6, 9}, {-100, 2, 9, -100, 9}},
          {{3, 4, 5, 9, 9}, {-100, -100, 5, 9, -100}},
          {{10, 11, 12, 13, 14}, {-100, 11, 12, 13, 14}},
          {{15, 16, 7, 8, 9}, {-100, 16, -100, -100, -100}}}));
  EXPECT_EQ(view.padding(), 0);
  std::vector<int64_t> starts(5);
  view.read_document_starts(3, starts);
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 0, 2, 2, 2}));
  const SequenceView cut(set, 5, Packing::kDocuments, LongDocuments::kTruncate);
  EXPECT_EQ(cut.rows(), 4);
  EXPECT_DOUBLE_EQ(cut.padding(), 1 - 18.0 / 20);
}

TEST(Sequences, PairsAreASourceAndATarget) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(
      write_tokens(folder, {{{1, 2, 9, 3, 9}, 3}, {{4, 9, 5, 6, 7, 9}, 2}, {{8, 9}, 1}}));
  const SequenceView view(set, 3, Packing::kPairs, LongDocuments::kSplit, /*start=*/77);
  EXPECT_EQ(view.size(), 3);
  std::vector<std::vector<int64_t>> sources, ids, labels;
  for (int64_t i = 0; i < view.size(); ++i) {
    std::vector<int64_t> source(5), row(5), label(5);
    view.read_source(i, source);
    source.resize(static_cast<size_t>(view.source_tokens(i)));
    const auto count = static_cast<size_t>(view.read(i, row, label));
    EXPECT_EQ(view.tokens(i), static_cast<int64_t>(count));
    row.resize(count);
    label.resize(count);
    sources.push_back(source);
    ids.push_back(row);
    labels.push_back(label);
  }
  EXPECT_EQ(sources, (std::vector<std::vector<int64_t>>{{1, 2, 9}, {4, 9}, {8}}));
  // The second row is truncated before its end-of-text token.
  EXPECT_EQ(ids, (std::vector<std::vector<int64_t>>{{77, 3, 9}, {77, 5, 6, 9}, {77, 9}}));
  EXPECT_EQ(labels, (std::vector<std::vector<int64_t>>{{-100, 3, 9}, {-100, 5, 6, 9}, {-100, 9}}));
}

TEST(Sequences, PerDocumentRowsAreSplitOrTruncated) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(
      write_tokens(folder, {{{1, 2, 3, 4, 9}, 4}, {{5, 9}}, {{6, 7, 9}, 1}, {{9}}}));
  EXPECT_EQ(
      rows_of(SequenceView(set, 3, Packing::kPerDocument)),
      (std::vector<Row>{
          {{1, 2, 3}, {-100, -100, -100}},
          {{4, 9}, {-100, 9}},
          {{5, 9}, {5, 9}},
          {{6, 7, 9}, {-100, 7, 9}},
          {{9}, {9}}}));
  EXPECT_EQ(
      rows_of(SequenceView(set, 3, Packing::kPerDocument, LongDocuments::kTruncate)),
      (std::vector<Row>{
          {{1, 2, 3}, {-100, -100, -100}},
          {{5, 9}, {5, 9}},
          {{6, 7, 9}, {-100, 7, 9}},
          {{9}, {9}}}));
}

TEST(Sequences, FindRowsAmongManyDocuments) {
  const TemporaryFolder folder;
  std::vector<TestDocument> documents;
  for (int32_t i = 0; i < 5000; ++i) {
    documents.push_back({run(i, 1 + i * 7 % 13), i % 3});
    documents.back().prompt = std::min<int64_t>(i % 3, 1 + i * 7 % 13);
  }
  const auto set = TokenDataset::open(write_tokens(folder, documents, 10'000));
  const SequenceView view(set, 5, Packing::kPerDocument);
  int64_t row = 0;
  for (const TestDocument& document : documents) {
    for (size_t at = 0; at < document.ids.size(); at += 5, ++row) {
      std::vector<int64_t> ids(5);
      std::vector<int64_t> labels(5);
      const int64_t count = view.read(row, ids, labels);
      ASSERT_EQ(count, std::min<int64_t>(5, static_cast<int64_t>(document.ids.size() - at)));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = static_cast<int64_t>(at) + i;
        ASSERT_EQ(ids[static_cast<size_t>(i)], document.ids[static_cast<size_t>(place)]);
        ASSERT_EQ(
            labels[static_cast<size_t>(i)],
            place < document.prompt ? kIgnored : ids[static_cast<size_t>(i)]);
      }
    }
  }
  EXPECT_EQ(view.size(), row);
}

TEST(Sequences, RefuseLengthsAndPlacesThatAreNone) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(write_tokens(folder, {{{1, 2, 3}}}));
  expect_parts(
      error_of([&] { SequenceView(set, 1); }, ErrorKind::kConfig), {"data.sequence_length=1"});
  EXPECT_THROW(SequenceView(set, int64_t{1} << 40), Error);
  const SequenceView view(set, 2);
  EXPECT_THROW(view.tokens(2), Error);
  EXPECT_THROW(view.tokens(-1), Error);
  EXPECT_EQ(SequenceView(TokenDataset::open(write_tokens(folder, {})), 2).size(), 0);
}

}  // namespace sequences_test
}  // namespace lockstep::data
