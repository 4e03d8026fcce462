// Reads Parquet and Arrow files written by Arrow's library as records.
#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/json/from_string.h>
#include <arrow/table.h>
#include <arrow/util/compression.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include "arrow/synchronous_file.h"
#include "data/column_rows.h"
#include "data/data_testing.h"
#include "data/prepare.h"
#include "data/token_dataset.h"

namespace lockstep::data {
namespace arrow_test {

namespace fs = std::filesystem;

std::shared_ptr<arrow::Array> array(
    const std::shared_ptr<arrow::DataType>& type, const std::string& json) {
  auto made = arrow::json::ArrayFromJSONString(type, json);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *made;
}

struct Column {
  std::string name;
  std::shared_ptr<arrow::Array> values;
};

std::shared_ptr<arrow::Table> table(const std::vector<Column>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const Column& column : columns) {
    fields.push_back(arrow::field(column.name, column.values->type()));
    arrays.push_back(column.values);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}

fs::path write_parquet(
    const TemporaryFolder& folder,
    const arrow::Table& rows,
    int64_t group = 2,
    const std::string& name = "a.parquet") {
  const fs::path path = folder.path() / name;
  fs::create_directories(path.parent_path());
  const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  EXPECT_TRUE(parquet::arrow::WriteTable(rows, arrow::default_memory_pool(), file, group).ok());
  EXPECT_TRUE(file->Close().ok());
  return path;
}

enum class Ipc { kFile, kStream };

fs::path write_arrow(const TemporaryFolder& folder, const arrow::Table& rows, Ipc form) {
  const fs::path path = folder.path() / (form == Ipc::kFile ? "file.arrow" : "stream.arrow");
  const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  const auto writer = form == Ipc::kFile
                          ? arrow::ipc::MakeFileWriter(file, rows.schema()).ValueOrDie()
                          : arrow::ipc::MakeStreamWriter(file, rows.schema()).ValueOrDie();
  EXPECT_TRUE(writer->WriteTable(rows, /*max_chunksize=*/2).ok());
  EXPECT_TRUE(writer->Close().ok());
  EXPECT_TRUE(file->Close().ok());
  return path;
}

std::vector<std::string> rows_of(const fs::path& path) {
  const auto reader = open_columns(path);
  std::vector<std::string> rows;
  Record record;
  while (reader->next(record)) {
    EXPECT_EQ(record.line, std::ssize(rows) + 1);
    rows.push_back(record.text);
  }
  return rows;
}

TEST(Columns, EveryFormGivesTheRowsInTheirOrder) {
  const TemporaryFolder folder;
  const auto rows = table(
      {{"text", array(arrow::utf8(), R"(["a\"\n", null, "é", "", "e"])")},
       {"n", array(arrow::int32(), "[1, -2, null, 4, 5]")}});
  const std::vector<std::string> wanted{
      R"({"text":"a\"\u000a","n":1})",
      R"({"text":null,"n":-2})",
      R"({"text":"é","n":null})",
      R"({"text":"","n":4})",
      R"({"text":"e","n":5})"};
  EXPECT_EQ(rows_of(write_parquet(folder, *rows)), wanted);
  EXPECT_EQ(rows_of(write_parquet(folder, *rows, 100)), wanted);
  EXPECT_EQ(rows_of(write_arrow(folder, *rows, Ipc::kFile)), wanted);
  EXPECT_EQ(rows_of(write_arrow(folder, *rows, Ipc::kStream)), wanted);
  EXPECT_TRUE(rows_of(write_parquet(folder, *rows->Slice(0, 0))).empty());
}

TEST(Columns, ValuesOfEveryTypeThatJsonHas) {
  const TemporaryFolder folder;
  const auto message =
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  const auto rows = table(
      {{"messages",
        array(
            arrow::list(message),
            R"([[{"role": "user", "content": "a"}, {"role": "x", "content": null}], []])")},
       {"large", array(arrow::large_utf8(), R"(["l", "m"])")},
       {"yes", array(arrow::boolean(), "[true, false]")},
       {"x", array(arrow::float64(), "[0.1, 2]")},
       {"f", array(arrow::float32(), "[0.1, 1e20]")},
       {"u", array(arrow::uint64(), "[18446744073709551615, 0]")},
       {"fixed", array(arrow::fixed_size_list(arrow::int8(), 2), "[[1, 2], [3, null]]")},
       {"day", array(arrow::date32(), "[0, 1]")},
       {"bytes", array(arrow::binary(), R"(["q", "r"])")}});
  EXPECT_EQ(
      rows_of(write_parquet(folder, *rows)),
      (std::vector<std::string>{
          R"({"messages":[{"role":"user","content":"a"},{"role":"x","content":null}],"large":"l","yes":true,"x":0.1,"f":0.10000000149011612,"u":18446744073709551615,"fixed":[1,2],"day":"1970-01-01"})",
          R"({"messages":[],"large":"m","yes":false,"x":2.0,"f":100000002004087734272.0,"u":0,"fixed":[3,null],"day":"1970-01-02"})"}));
}

TEST(Columns, DamagedAndForeignFilesAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  const auto rows = table({{"text", array(arrow::utf8(), R"(["aaaa", "bbbb", "cccc"])")}});
  const fs::path whole = write_parquet(folder, *rows);
  const std::string bytes = read_file(whole);
  for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{20}, size_t{4}}) {
    const fs::path cut = write(folder, "cut.parquet", bytes.substr(0, size));
    expect_parts(error_of([&] { rows_of(cut); }), {"cut.parquet", "truncated, damaged"});
  }
  const fs::path stream = write_arrow(folder, *rows, Ipc::kStream);
  const std::string arrow_bytes = read_file(stream);
  const fs::path cut = write(folder, "cut.arrow", arrow_bytes.substr(0, arrow_bytes.size() / 2));
  expect_parts(error_of([&] { rows_of(cut); }), {"cut.arrow", "truncated, damaged"});
  expect_parts(
      error_of([&] { rows_of(write(folder, "b.parquet", "text,n\na,1\n")); }), {"b.parquet"});
  expect_parts(error_of([&] { rows_of(write(folder, "empty.parquet", "")); }), {"empty.parquet"});
}

/// A column of 1,024 rows that all refer to one text of 1 MiB.
std::shared_ptr<arrow::Array> repeated_text() {
  const std::string text = "[\"" + std::string(1 << 20, 'a') + "\"]";
  arrow::Int32Builder codes;
  EXPECT_TRUE(codes.AppendValues(std::vector<int32_t>(1024, 0)).ok());
  return arrow::DictionaryArray::FromArrays(
             arrow::dictionary(arrow::int32(), arrow::utf8()),
             codes.Finish().ValueOrDie(),
             array(arrow::utf8(), text))
      .ValueOrDie();
}

/// The same as one row with a list.
std::shared_ptr<arrow::Array> list_of(const std::shared_ptr<arrow::Array>& values) {
  const auto end = std::to_string(values->length());
  return arrow::ListArray::FromArrays(*array(arrow::int32(), "[0, " + end + "]"), *values)
      .ValueOrDie();
}

TEST(Columns, SmallFilesThatExpandToGigabytesAreRefused) {
  const TemporaryFolder folder;
  const auto expect_refused = [](const fs::path& path) {
    EXPECT_LT(fs::file_size(path), 20000U);
    expect_parts(
        error_of([&] { rows_of(path); }),
        {path.filename().string(), "expands to more than 1,000 times its size and 64 MiB"});
  };
  const auto rows = table({{"text", repeated_text()}});
  const fs::path parquet = folder.path() / "a.parquet";
  auto file = arrow::io::FileOutputStream::Open(parquet).ValueOrDie();
  const auto properties = parquet::WriterProperties::Builder()
                              .compression(arrow::Compression::ZSTD)
                              ->dictionary_pagesize_limit(1 << 26)
                              ->build();
  ASSERT_TRUE(parquet::arrow::WriteTable(
                  *rows, arrow::default_memory_pool(), file, /*chunk_size=*/1024, properties)
                  .ok());
  ASSERT_TRUE(file->Close().ok());
  expect_refused(parquet);
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.codec = arrow::util::Codec::Create(arrow::Compression::ZSTD).ValueOrDie();
  for (const auto& column : {repeated_text(), list_of(repeated_text())}) {
    const auto content = table({{"text", column}});
    const fs::path path = folder.path() / (column->length() == 1 ? "list.arrow" : "rows.arrow");
    file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
    const auto writer = arrow::ipc::MakeFileWriter(file, content->schema(), options).ValueOrDie();
    ASSERT_TRUE(writer->WriteTable(*content).ok());
    ASSERT_TRUE(writer->Close().ok());
    ASSERT_TRUE(file->Close().ok());
    expect_refused(path);
  }
}

/// Nothing is read ahead into memory that is released with the reader.
TEST(Columns, ReadersCanBeClosedAfterOneRow) {
  const TemporaryFolder folder;
  std::vector<Column> columns;
  for (int i = 0; i < 8; ++i) {
    columns.push_back({std::to_string(i), array(arrow::utf8(), R"(["one", "two", "three"])")});
  }
  const fs::path path = write_parquet(folder, *table(columns), /*group=*/1);
  for (int i = 0; i < 300; ++i) {
    const auto reader = open_columns(path);
    Record record;
    ASSERT_TRUE(reader->next(record));
  }
}

TEST(Columns, AnAsynchronousReadHasEndedWhenItReturns) {
  const TemporaryFolder folder;
  write(folder, "file", "0123456789");
  const auto opened = arrow::io::ReadableFile::Open(folder.path() / "file").ValueOrDie();
  arrow_rows::SynchronousFile file(opened);
  auto read = file.ReadAsync(arrow::io::default_io_context(), 2, 3);
  ASSERT_TRUE(read.is_finished());
  const std::shared_ptr<arrow::Buffer> buffer = read.result().ValueOrDie();
  EXPECT_EQ(buffer->ToString(), "234");
  EXPECT_EQ(buffer.use_count(), 2);  // no thread holds another reference
}

TEST(Columns, AreReadWhereverFilesAre) {
  const TemporaryFolder folder;
  const auto rows = table(
      {{"text", array(arrow::utf8(), R"(["one", "two", "three"])")},
       {"n", array(arrow::int64(), "[1, 2, 3]")}});
  write_parquet(folder, *rows, 2, "data/a.parquet");
  write(
      folder, "lines/a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  DataOptions options;
  options.cache_dir = folder.path() / "cache";
  const auto hash_of = [&](const char* files) {
    options.train = {folder.path() / files};
    return TokenDataset::open(prepare_data(options, byte_encoder()).train)->content_hash();
  };
  EXPECT_EQ(hash_of("data"), hash_of("lines"));
  options.text_field = "n";
  options.train = {folder.path() / "data"};
  expect_parts(
      error_of([&] { prepare_data(options, byte_encoder()); }),
      {"a.parquet, row 1: the field \"n\" is of type number"});
}

}  // namespace arrow_test
}  // namespace lockstep::data
