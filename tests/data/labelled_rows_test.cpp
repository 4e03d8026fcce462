#include "data/labelled_rows.h"

#include "data/loader.h"
#include "data/token_dataset.h"
#include "data_testing.h"
#include "shared_data.h"

namespace lockstep::data {
namespace labelled_rows_test {

DataOptions options_of(const std::string& label = "label") {
  DataOptions options;
  options.label_field = label;
  return options;
}

LabelledRows read(const std::filesystem::path& path, const DataOptions& options = options_of()) {
  const std::vector<std::string> words{path.string()};
  return read_labelled(words, options, "data.train");
}

/// "text|pair|label" of each row.
std::vector<std::string> shown(const LabelledRows& rows) {
  std::vector<std::string> result;
  for (const LabelledRow& row : rows.rows) {
    result.push_back(row.text + "|" + row.pair + "|" + row.label.value_or("none"));
  }
  return result;
}

using Texts = std::vector<std::string>;

TEST(LabelledRows, AreReadFromTablesAndJson) {
  const TemporaryFolder folder;
  const auto csv = write(
      folder, "a.csv", "text,label,other\n\"one, \"\"two\"\"\nthree\", good ,x\n,bad,y\nz,,y\n");
  const LabelledRows rows = read(csv);
  EXPECT_EQ(shown(rows), (Texts{"one, \"two\"\nthree||good", "||bad", "z||none"}));
  EXPECT_EQ(rows.place(rows.rows[1]), csv.string() + ", line 4");
  const auto tsv = write(folder, "a.tsv", "sentence\tlabel\nfine work \t1\nbad\t0\n");
  EXPECT_EQ(shown(read(tsv)), (Texts{"fine work ||1", "bad||0"}));
  const auto json = write(
      folder,
      "a.jsonl",
      "{\"text\": \"a\", \"label\": 3}\n{\"text\": \"b\", \"label\": true}\n"
      "{\"text\": \"\", \"label\": \" x y \"}\n{\"text\": \"c\", \"label\": null}\n");
  EXPECT_EQ(shown(read(json)), (Texts{"a||3", "b||True", "||x y", "c||none"}));
}

TEST(LabelledRows, PairsAreNamedOrGlues) {
  const TemporaryFolder folder;
  const auto glue = write(folder, "a.csv", "sentence1,sentence2,label\na,b,yes\nc,d,no\n");
  EXPECT_EQ(shown(read(glue)), (Texts{"a|b|yes", "c|d|no"}));
  const auto named = write(folder, "b.csv", "premise,hypothesis,gold\na,b,yes\n");
  DataOptions options = options_of("gold");
  options.text_field = "premise";
  options.text_pair_field = "hypothesis";
  EXPECT_EQ(shown(read(named, options)), (Texts{"a|b|yes"}));
}

TEST(LabelledRows, LabelsMayBeMissingWhereTheyAreNotNeeded) {
  const TemporaryFolder folder;
  DataOptions options = options_of();
  options.needs_labels = false;
  const auto csv = write(folder, "a.csv", "text\none\ntwo\n");
  EXPECT_EQ(shown(read(csv, options)), (Texts{"one||none", "two||none"}));
  const auto json =
      write(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"b\", \"label\": -1}\n");
  const LabelledRows rows = read(json, options);
  EXPECT_EQ(shown(rows), (Texts{"one||none", "b||-1"}));
  EXPECT_EQ(
      classes_of(rows, {"a", "b"}, "data.test", MissingLabels::kNoClass),
      (std::vector<int64_t>{kNoClass, kNoClass}));
}

TEST(LabelledRows, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto csv = write(folder, "a.csv", "text,labell\nx,1\n");
  expect_parts(
      error_of([&] { read(csv); }),
      {"a.csv, line 1", "no field \"label\"", "'labell'", "data.label_field"});
  expect_parts(
      error_of([&] { read(write(folder, "b.csv", "txt,label\nx,1\n")); }),
      {"no field \"text\"", "'txt'"});
  expect_parts(
      error_of([&] { read(write(folder, "b.txt", "some text\n")); }, ErrorKind::kConfig),
      {"b.txt", "plain text", "CSV"});
  expect_parts(
      error_of([&] { read(write(folder, "c.jsonl", "{\"text\": \"a\", \"label\": [1]}\n")); }),
      {"c.jsonl, line 1", "a list"});
  expect_parts(
      error_of([&] { read(write(folder, "d.jsonl", "{\"text\": \"a\", \"label\": 0.5}\n")); }),
      {"d.jsonl, line 1", "0.5"});
  expect_parts(error_of([&] { read(write(folder, "e.csv", "text,label\n")); }), {"no rows"});
}

TEST(LabelledRows, LabelsAreSortedAsNumbersOrByCodePoint) {
  const TemporaryFolder folder;
  const auto numbers = read(write(folder, "a.csv", "text,label\na,10\nb,2\nc,-1\nd,2\n"));
  EXPECT_EQ(find_labels(numbers, "data.train"), (Texts{"-1", "2", "10"}));
  EXPECT_EQ(
      classes_of(numbers, {"-1", "2", "10"}, "data.train"), (std::vector<int64_t>{2, 1, 0, 1}));
  const auto names = read(write(folder, "b.csv", "text,label\na,10\nb,2\nc,é\nd,Z\ne,a\n"));
  EXPECT_EQ(find_labels(names, "data.train"), (Texts{"10", "2", "Z", "a", "é"}));
  expect_parts(
      error_of([&] {
        find_labels(read(write(folder, "c.csv", "text,label\na,yes\nb,yes\n")), "data.train");
      }),
      {"data.train", "\"yes\""});
  expect_parts(
      error_of([&] {
        find_labels(read(write(folder, "d.csv", "text,label\na,yes\nb,\nc,no\n")), "data.train");
      }),
      {"1 row without a label", "d.csv, line 3"});
}

TEST(LabelledRows, UnknownLabelsAreListedWithTheirRows) {
  const TemporaryFolder folder;
  const auto rows = read(write(folder, "dev.csv", "text,label\na,goood\nb,bad\nc,other\n"));
  expect_parts(
      error_of([&] { classes_of(rows, {"bad", "good"}, "data.validation"); }),
      {"data.validation: 2 rows",
       "dev.csv, line 2: \"goood\".",
       "'good'",
       "dev.csv, line 4: \"other\"",
       "bad, good",
       "task.labels"});
  const auto plain = read(write(folder, "n.csv", "text,label\na,1\nb,0\nc,LABEL_1\n"));
  EXPECT_EQ(
      classes_of(plain, {"LABEL_0", "LABEL_1"}, "data.test"), (std::vector<int64_t>{1, 0, 1}));
}

TEST(CutPair, CutsTheLongerOneFirst) {
  const auto cut = [](int64_t first, int64_t second, int64_t limit) {
    const PairLengths kept = cut_pair({first, second}, limit);
    return std::pair(kept.first, kept.second);
  };
  EXPECT_EQ(cut(3, 4, 7), std::pair(3L, 4L));
  EXPECT_EQ(cut(3, 9, 7), std::pair(3L, 4L));
  EXPECT_EQ(cut(9, 3, 7), std::pair(4L, 3L));
  EXPECT_EQ(cut(9, 9, 7), std::pair(3L, 4L));
  EXPECT_EQ(cut(10, 9, 7), std::pair(4L, 3L));
  EXPECT_EQ(cut(9, 0, 7), std::pair(7L, 0L));
}

TEST(LabelledRows, BecomeTokensOfAtMostTheLimit) {
  const TemporaryFolder folder;
  const auto rows =
      read(write(folder, "a.csv", "sentence1,sentence2,label\nabcdef,xyz,1\n,,0\nab,,0\n"));
  Encoder encoder = byte_encoder();
  using Ids = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(
      encode_rows(rows, encoder, 5, 258), (Ids{{'a', 'b', 'c', 'x', 'y'}, {258}, {'a', 'b'}}));
  encoder.begin = 257;
  EXPECT_EQ(
      encode_rows(rows, encoder, 7, 258),
      (Ids{{257, 'a', 'b', 'c', 257, 'x', 'y'}, {257}, {257, 'a', 'b'}}));
}

TEST(LabelledRows, AreReadAsMicroBatchesWithClassesAndPositions) {
  const TemporaryFolder folder;
  const std::vector<std::vector<int32_t>> ids{{5, 6, 7}, {8}, {258, 258}, {4, 3, 258}};
  const auto path = write_rows(ids, folder.path(), "a tokenizer", 259, 258);
  EXPECT_EQ(write_rows(ids, folder.path(), "a tokenizer", 259, 258), path);
  EXPECT_NE(write_rows(ids, folder.path(), "another", 259, 258), path);
  const SequenceView view(TokenDataset::open(path), 4, {1, 0, kNoClass, 2});
  const MicroBatch batch = make_micro_batch(view, {{3, 0}, {0, 1}, {2, 2}, {1, 3}});
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.classes, (std::vector<int64_t>{2, 1, kNoClass, 0}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{1, 2, 0, 0}));
  EXPECT_EQ(batch.labels, std::vector<int64_t>(16, kIgnored));
  const MicroBatch empty = make_micro_batch(view, {});
  EXPECT_EQ(empty.classes, std::vector<int64_t>{kIgnored});
}

TEST(LabelledRows, OfRealSets) {
  SKIP_WITHOUT_SHARED_DATA("banking77");
  const LabelledRows rows = read(shared_data() / "banking77" / "test.csv", options_of("category"));
  EXPECT_EQ(rows.rows.size(), 3080U);
  EXPECT_EQ(find_labels(rows, "data.test").size(), 77U);
}

}  // namespace labelled_rows_test
}  // namespace lockstep::data
