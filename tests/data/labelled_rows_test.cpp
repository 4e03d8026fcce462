// Tests of labelled rows for classification.
#include "data/labelled_rows.h"

#include "data/loader.h"
#include "data/row_targets.h"
#include "data/token_dataset.h"
#include "data_testing.h"
#include "shared_data.h"

namespace lockstep::data {
namespace labelled_rows_test {

DataOptions options_of(const std::string& label = "label") {
  DataOptions options;
  options.label_fields = {label};
  return options;
}

LabelledRows read(const std::filesystem::path& path, const DataOptions& options = options_of()) {
  const std::vector<std::string> words{path.string()};
  return read_labelled(words, options, "data.train");
}

/// Returns "text|pair|label" for each row.
std::vector<std::string> shown(const LabelledRows& rows) {
  std::vector<std::string> result;
  for (const LabelledRow& row : rows.rows) {
    std::string label = row.label ? "" : "none";
    for (const std::string& word : row.label.value_or(RawLabel()).words) {
      label += (label.empty() ? "" : ";") + word;
    }
    const bool is_list = row.label && row.label->is_list;
    result.push_back(row.text + "|" + row.pair + "|" + (is_list ? "[" + label + "]" : label));
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
      error_of([&] { read(write(folder, "c.jsonl", "{\"text\": \"a\", \"label\": [[1]]}\n")); }),
      {"c.jsonl, line 1", "an array"});
  expect_parts(error_of([&] { read(write(folder, "e.csv", "text,label\n")); }), {"no rows"});
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
  using Ids = std::vector<RowIds>;
  EXPECT_EQ(
      encode_rows(rows, encoder, 5, 258),
      (Ids{{{'a', 'b', 'c', 'x', 'y'}}, {{258}}, {{'a', 'b'}}}));
  encoder.begin = 257;
  EXPECT_EQ(
      encode_rows(rows, encoder, 7, 258),
      (Ids{{{257, 'a', 'b', 'c', 257, 'x', 'y'}}, {{257}}, {{257, 'a', 'b'}}}));
}

TEST(LabelledRows, TakeTheTemplateOfAnEncoder) {
  const TemporaryFolder folder;
  const auto rows =
      read(write(folder, "a.csv", "sentence1,sentence2,label\nabcdef,xyz,1\n,,0\nab,,0\n"));
  Encoder encoder = byte_encoder();
  encoder.begin = 1;  // already part of the template
  encoder.rows = text::RowTemplate{
      .before = {1},
      .after = {2},
      .pair_before = {1},
      .between = {2, 3},
      .pair_after = {2},
      .between_of_first = 1,
      .tells_segments = true};
  EXPECT_EQ(
      encode_rows(rows, encoder, 9, 258),
      (std::vector<RowIds>{
          {{1, 'a', 'b', 'c', 2, 3, 'x', 'y', 2}, 5}, {{1, 2}}, {{1, 'a', 'b', 2}}}));
  try {
    (void)encode_rows(rows, encoder, 3, 258);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(error.message().find("the 4 tokens of the tokenizer's template"), std::string::npos)
        << error.what();
  }
}

TEST(LabelledRows, OfAnEncoderAreReadAtTheirFirstTokenAndTellSegments) {
  const TemporaryFolder folder;
  const std::vector<RowIds> ids{{{1, 5, 2, 6, 7, 2}, 3}, {{1, 8, 2}}};
  SequenceView view(
      TokenDataset::open(write_rows(ids, folder.path(), "a tokenizer", 259, 258)), 8, {1, 0});
  view.set_encoder({.tells_segments = true});
  const MicroBatch batch = make_micro_batch(view, {{0, 0}, {1, 1}});
  EXPECT_EQ(batch.length, 8);
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(
      batch.token_types, (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  // Padding is a separate document, so the text does not attend to it.
  EXPECT_EQ(
      batch.document_starts,
      (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 6, 6, 0, 0, 0, 3, 3, 3, 3, 3}));
}

TEST(LabelledRows, AreReadAsMicroBatchesWithClassesAndPositions) {
  const TemporaryFolder folder;
  const std::vector<RowIds> ids{{{5, 6, 7}}, {{8}}, {{258, 258}}, {{4, 3, 258}}};
  const auto path = write_rows(ids, folder.path(), "a tokenizer", 259, 258);
  EXPECT_EQ(write_rows(ids, folder.path(), "a tokenizer", 259, 258), path);
  EXPECT_NE(write_rows(ids, folder.path(), "another", 259, 258), path);
  const SequenceView view(TokenDataset::open(path), 4, {1, 0, kIgnored, 2});
  const MicroBatch batch = make_micro_batch(view, {{3, 0}, {0, 1}, {2, 2}, {1, 3}});
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.classes, (std::vector<int64_t>{2, 1, kIgnored, 0}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{1, 2, 0, 0}));
  EXPECT_EQ(batch.labels, std::vector<int64_t>(16, kIgnored));
  const MicroBatch empty = make_micro_batch(view, {});
  EXPECT_EQ(empty.classes, std::vector<int64_t>{kIgnored});
  EXPECT_TRUE(batch.outputs.empty());
  const SequenceView of_outputs(
      TokenDataset::open(path), 4, {0, 0, kIgnored, 0}, {1, 2, 3, 4, 0, 0, 5, 6});
  EXPECT_EQ(
      make_micro_batch(of_outputs, {{3, 0}, {0, 1}}).outputs, (std::vector<float>{5, 6, 1, 2}));
  EXPECT_EQ(make_micro_batch(of_outputs, {}).outputs, (std::vector<float>{0, 0}));
}

TEST(LabelledRows, MayHaveListsOrFieldsOfLabels) {
  const TemporaryFolder folder;
  const auto json = write(
      folder,
      "a.jsonl",
      "{\"text\": \"a\", \"label\": [\"joy\", \" love \"]}\n{\"text\": \"b\", \"label\": []}\n"
      "{\"text\": \"c\", \"label\": [3, true]}\n{\"text\": \"d\", \"label\": 0.5}\n");
  EXPECT_EQ(shown(read(json)), (Texts{"a||[joy;love]", "b||[]", "c||[3;True]", "d||0.5"}));
  const auto csv = write(
      folder,
      "a.csv",
      "text,label\na,\"['joy', \"\"it's\"\"]\"\nb,\"[3, 27]\"\nc,[odd]\nd,['a' 'b']\ne,[]\n");
  EXPECT_EQ(
      shown(read(csv)), (Texts{"a||[joy;it's]", "b||[3;27]", "c||[odd]", "d||['a' 'b']", "e||[]"}));
  DataOptions cut = options_of();
  cut.label_delimiter = "|";
  const auto bars = write(folder, "b.csv", "text,label\na,joy | love\nb,\nc,fear\n");
  EXPECT_EQ(shown(read(bars, cut)), (Texts{"a||[joy;love]", "b||[]", "c||[fear]"}));
  DataOptions fields = options_of();
  fields.label_fields = {"joy", "fear"};
  const auto table = write(folder, "c.csv", "text,fear,joy\na,0,1\nb,,1\nc,,\n");
  EXPECT_EQ(shown(read(table, fields)), (Texts{"a||1;0", "b||1;", "c||none"}));
  const auto objects =
      write(folder, "c.jsonl", "{\"text\": \"a\", \"joy\": true, \"fear\": 0.5}\n");
  EXPECT_EQ(shown(read(objects, fields)), (Texts{"a||True;0.5"}));
  expect_parts(
      error_of([&] { read(write(folder, "d.csv", "text,fear,joys\na,0,1\n"), fields); }),
      {"no field \"joy\"", "'joys'"});
}

TEST(LabelledRows, OfRealSets) {
  SKIP_WITHOUT_SHARED_DATA("banking77");
  SKIP_WITHOUT_SHARED_DATA("goemotions");
  const LabelledRows rows = read(shared_data() / "banking77" / "test.csv", options_of("category"));
  EXPECT_EQ(rows.rows.size(), 3080U);
  EXPECT_EQ(find_labels(rows, TargetForm::kClass, "data.test").size(), 77U);
  const LabelledRows several =
      read(shared_data() / "goemotions" / "test.jsonl", options_of("labels"));
  EXPECT_EQ(find_form(several, 1, "data.test"), TargetForm::kLabels);
  EXPECT_EQ(several.rows.size(), 900U);
}

}  // namespace labelled_rows_test
}  // namespace lockstep::data
