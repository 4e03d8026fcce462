// Tests of reading plain, gzip and zstd files as byte streams.
#include "data/byte_source.h"

#include <random>

#include "data/line_reader.h"
#include "data_testing.h"

namespace lockstep::data {
namespace byte_source_test {

std::string read_all(const std::filesystem::path& path, size_t step) {
  const auto source = open_bytes(path);
  std::string text;
  std::string block(step, '\0');
  while (const size_t count = source->read(block)) {
    text.append(block, 0, count);
  }
  EXPECT_EQ(source->read(block), 0U);  // remains at the end
  return text;
}

std::string noise(size_t size) {
  std::mt19937 random(7);
  std::string text = "x";  // not the signature of another format
  while (text.size() < size) {
    text += static_cast<char>(random() % 7 == 0 ? random() : 'a' + random() % 4);
  }
  return text;
}

TEST(ByteSource, ReadsEveryCompressionInEveryStep) {
  const TemporaryFolder folder;
  const std::string text = noise(700'001);
  const auto plain = write(folder, "a.txt", text);
  const auto gz = write(folder, "a.txt.gz", gzip(text));
  const auto zst = write(folder, "a.txt.zst", zstd(text));
  for (const size_t step : {1UL << 20, 65536UL, 4097UL, 700'001UL}) {
    EXPECT_EQ(read_all(plain, step), text);
    EXPECT_EQ(read_all(gz, step), text) << step;
    EXPECT_EQ(read_all(zst, step), text) << step;
  }
  const std::string small = "small";
  EXPECT_EQ(read_all(write(folder, "b.gz", gzip(small)), 1), small);
  EXPECT_EQ(read_all(write(folder, "b.zst", zstd(small)), 1), small);
}

TEST(ByteSource, ReadsManyMembersAndEmptyOnes) {
  const TemporaryFolder folder;
  const std::string big(300'000, 'q');
  EXPECT_EQ(
      read_all(write(folder, "a.gz", gzip("one") + gzip("") + gzip(big) + gzip("two")), 1000),
      "one" + big + "two");
  EXPECT_EQ(
      read_all(write(folder, "a.zst", zstd("one") + zstd("") + zstd(big) + zstd("two")), 1000),
      "one" + big + "two");
  EXPECT_EQ(read_all(write(folder, "e.gz", gzip("")), 10), "");
  EXPECT_EQ(read_all(write(folder, "e.zst", zstd("")), 10), "");
  EXPECT_EQ(read_all(write(folder, "e.txt", ""), 10), "");
}

TEST(ByteSource, TellsDataThatIsCutOffAnywhere) {
  const TemporaryFolder folder;
  const std::string text = noise(5000);
  for (const auto& [name, whole] :
       {std::pair<std::string, std::string>{"a.gz", gzip(text)}, {"a.zst", zstd(text)}}) {
    for (size_t size = 0; size < whole.size(); size += size < 40 ? 1 : 97) {
      const auto path = write(folder, name, std::string_view(whole).substr(0, size));
      const std::string error = error_of([&] { read_all(path, 4096); });
      EXPECT_NE(error.find(path.string()), std::string::npos) << error;
    }
    const auto path = write(folder, name, std::string_view(whole).substr(0, whole.size() - 1));
    expect_parts(error_of([&] { read_all(path, 4096); }), {"ends early", "download it again"});
  }
}

TEST(ByteSource, ASmallFrameIsSoundOrNotHoweverMuchIsAskedFor) {
  const TemporaryFolder folder;
  // The frame header announces 66 bytes, but its only block is empty.
  const std::string frame("\x28\xb5\x2f\xfd\x31\x00\x42\x01\x00\x00", 10);
  const auto path = write(folder, "a.zst", frame);
  for (const size_t step : {1UL, 7UL, 66UL, 65536UL}) {
    expect_parts(error_of([&] { read_all(path, step); }), {"a.zst", "zstd data is not valid"});
  }
}

TEST(ByteSource, ASmallFileThatFillsADiskIsRefused) {
  const TemporaryFolder folder;
  const std::string most(size_t{96} << 20, 'a');  // zstd compresses it to 3 kB, gzip to 98 kB
  const auto zst = write(folder, "bomb.zst", zstd(most));
  expect_parts(
      error_of([&] {
        const auto source = open_bytes(zst);
        std::string block(size_t{1} << 20, '\0');
        while (source->read(block) > 0) {
        }
      }),
      {"bomb.zst", "more than 1000 times", "decompress it first"});
  const std::string much(size_t{60} << 20, 'a');  // this much is accepted at any compression ratio
  EXPECT_EQ(read_all(write(folder, "a.zst", zstd(much)), size_t{1} << 20).size(), much.size());
}

TEST(ByteSource, TellsDamageAndWhatIsNotText) {
  const TemporaryFolder folder;
  std::string damaged = gzip(noise(5000));
  damaged[damaged.size() / 2] ^= 0x55;
  const auto gz = write(folder, "d.gz", damaged);
  expect_parts(error_of([&] { read_all(gz, 4096); }), {"d.gz", "gzip data is not valid"});
  std::string frame = zstd(noise(5000));
  frame[8] ^= 0x55;
  const auto zst = write(folder, "d.zst", frame);
  expect_parts(error_of([&] { read_all(zst, 4096); }), {"d.zst", "zstd data is not valid"});
  const auto garbage = write(folder, "g.gz", gzip("one") + "garbage");
  expect_parts(error_of([&] { read_all(garbage, 4096); }), {"g.gz", "not valid"});

  const auto fake = write(folder, "fake.txt.gz", "plain text");
  expect_parts(error_of([&] { open_bytes(fake); }), {"fake.txt.gz", "named .gz", "rename"});
  const auto parquet = write(folder, "a.parquet", "PAR1....");
  expect_parts(error_of([&] { open_bytes(parquet); }), {"Parquet", "data.format=jsonl"});
  const auto utf16 = write(folder, "w.txt", std::string_view("\xFF\xFEh\0i\0", 6));
  expect_parts(error_of([&] { open_bytes(utf16); }), {"UTF-16", "iconv"});
  expect_parts(error_of([&] { open_bytes(folder.path()); }), {"is a folder"});
  expect_parts(error_of([&] { open_bytes(folder.path() / "no"); }), {"no", "No such file"});
}

struct Line {
  std::string text;
  LineEnd end;
  int64_t number;
  bool operator==(const Line&) const = default;
};

std::vector<Line> lines_of(const std::filesystem::path& path, size_t most = 1000) {
  LineReader reader(open_bytes(path));
  std::vector<Line> lines;
  Line line;
  while (reader.next(line.text, line.end, most)) {
    line.number = reader.number();
    lines.push_back(line);
  }
  return lines;
}

TEST(LineReader, SplitsAtNewlinesOfBothKinds) {
  const TemporaryFolder folder;
  using enum LineEnd;
  EXPECT_EQ(lines_of(write(folder, "a", "")), (std::vector<Line>{}));
  EXPECT_EQ(lines_of(write(folder, "a", "\xEF\xBB\xBF")), (std::vector<Line>{}));
  EXPECT_EQ(lines_of(write(folder, "a", "\xEF\xBB")), (std::vector<Line>{{"\xEF\xBB", kNone, 1}}));
  EXPECT_EQ(
      lines_of(write(folder, "a", "\xEF\xBB\xBFone\r\n\ntwo\r")),
      (std::vector<Line>{{"one", kNewline, 1}, {"", kNewline, 2}, {"two\r", kNone, 3}}));
  EXPECT_EQ(lines_of(write(folder, "a", "\n")), (std::vector<Line>{{"", kNewline, 1}}));
}

TEST(LineReader, CutsLongLinesBetweenCodePoints) {
  const TemporaryFolder folder;
  using enum LineEnd;
  EXPECT_EQ(
      lines_of(write(folder, "a", "abcdefg\nh"), 3),
      (std::vector<Line>{
          {"abc", kMore, 1}, {"def", kMore, 1}, {"g", kNewline, 1}, {"h", kNone, 2}}));
  EXPECT_EQ(
      lines_of(write(folder, "a", "abc\r\nd"), 3),
      (std::vector<Line>{{"abc", kNewline, 1}, {"d", kNone, 2}}));
  EXPECT_EQ(
      lines_of(
          write(
              folder,
              "a",
              "ab\xC3\xA9"
              "c"),
          3),
      (std::vector<Line>{
          {"ab", kMore, 1},
          {"\xC3\xA9"
           "c",
           kNone,
           1}}));
  std::string text;
  for (int i = 0; i < 200'000; ++i) {
    text += "\xE4\xB8\xAD";
  }
  std::string joined;
  for (const Line& line : lines_of(write(folder, "a", text), 1000)) {
    EXPECT_EQ(line.text.size() % 3, 0U);
    EXPECT_EQ(line.number, 1);
    joined += line.text;
  }
  EXPECT_EQ(joined, text);
  const std::string bytes(5000, '\x80');  // invalid UTF-8 is also cut without loss
  joined.clear();
  for (const Line& line : lines_of(write(folder, "a", bytes), 100)) {
    joined += line.text;
  }
  EXPECT_EQ(joined, bytes);
}

}  // namespace byte_source_test
}  // namespace lockstep::data
