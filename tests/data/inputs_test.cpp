// Tests of dataset paths: patterns, folders and slices.
#include "data/inputs.h"

#include "data_testing.h"

namespace lockstep::data {
namespace inputs_test {

std::vector<std::string> names_of(
    const TemporaryFolder& folder, std::vector<std::string> words, Format format = Format::kAuto) {
  for (std::string& word : words) {
    word = (folder.path() / word).string();
  }
  std::vector<std::string> names;
  for (const InputFile& input : find_inputs(words, format, "data.train")) {
    names.push_back(
        std::filesystem::relative(input.path, folder.path()).string() + ":" +
        std::string(name_of(input.format)));
  }
  return names;
}

TEST(Inputs, FindsFilesGlobsAndFolders) {
  const TemporaryFolder folder;
  for (const char* name :
       {"b.txt",
        "a.txt.gz",
        "sub/c.JSONL",
        "sub/deep/d.csv.zst",
        "sub/e.tsv",
        "sub/skip.bin",
        "sub/.hidden.txt",
        ".cache/x.txt",
        "odd[1].txt"}) {
    write(folder, name, "x");
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(folder, {"b.txt", "a.txt.gz"}), (Names{"b.txt:text", "a.txt.gz:text"}));
  EXPECT_EQ(
      names_of(folder, {"*.txt*"}), (Names{"a.txt.gz:text", "b.txt:text", "odd[1].txt:text"}));
  EXPECT_EQ(names_of(folder, {"{b,a}.txt*"}), (Names{"a.txt.gz:text", "b.txt:text"}));
  EXPECT_EQ(names_of(folder, {"odd[1].txt"}), (Names{"odd[1].txt:text"}));
  EXPECT_EQ(
      names_of(folder, {"sub"}),
      (Names{"sub/c.JSONL:json", "sub/deep/d.csv.zst:csv", "sub/e.tsv:tsv"}));
  EXPECT_EQ(names_of(folder, {"b.txt", "*.txt", "sub/../b.txt"}).size(), 2U);
  EXPECT_EQ(names_of(folder, {"sub/skip.bin"}, Format::kText), (Names{"sub/skip.bin:text"}));
  EXPECT_EQ(names_of(folder, {}), (Names{}));
}

TEST(Inputs, SaysWhatIsMissingOrUnknown) {
  const TemporaryFolder folder;
  write(folder, "train.txt", "x");
  write(folder, "data.bin", "x");
  write(folder, "empty/x.bin", "x");
  expect_parts(
      error_of([&] { names_of(folder, {"trian.txt"}); }),
      {"data.train", "does not exist", "Did you mean 'train.txt'?"});
  expect_parts(error_of([&] { names_of(folder, {"no/such.txt"}); }), {"The folder "});
  expect_parts(error_of([&] { names_of(folder, {"*.json"}); }), {"no file matches"});
  expect_parts(
      error_of([&] { names_of(folder, {"data.bin"}); }),
      {"data.bin", "the format of", "data.format=text"});
  expect_parts(error_of([&] { names_of(folder, {"empty"}); }), {"contains no data files"});
}

TEST(DataOptions, ListsEveryProblem) {
  DataOptions options;
  options.validation_fraction = -0.1;
  options.test_fraction = 1.5;
  options.text_field = "";
  const auto problems = problems_of(options);
  EXPECT_EQ(problems.size(), 6U) << problems.back();
  expect_parts(
      error_of([] { parse_format("jason"); }, ErrorKind::kConfig),
      {"data.format", "jason", "json"});
  EXPECT_EQ(parse_long_documents("truncate"), LongDocuments::kTruncate);
}

TEST(RowPart, IsRoundedAsDatasetsRoundsIt) {
  const auto of = [](const std::string& part, int64_t rows) {
    const RowRange range = split_part("x" + part, "data.train").part.value().of(rows);
    return std::pair(range.begin, range.end);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(of("[:80%]", 10), Pair(0, 8));
  EXPECT_EQ(of("[50%:]", 5), Pair(2, 5));  // 2.5 rounds to even
  EXPECT_EQ(of("[50%:]", 7), Pair(4, 7));  // 3.5
  EXPECT_EQ(of("[:33%]", 10), Pair(0, 3));
  EXPECT_EQ(of("[-5%:]", 30), Pair(28, 30));  // -1.5
  EXPECT_EQ(of("[10:100]", 50), Pair(10, 50));
  EXPECT_EQ(of("[-3:]", 50), Pair(47, 50));
  EXPECT_EQ(of("[-300:-10]", 50), Pair(0, 40));
  EXPECT_EQ(of("[10:80%]", 50), Pair(5, 40));  // one % applies to both bounds
  EXPECT_EQ(of("[:]", 50), Pair(0, 50));
  EXPECT_FALSE(split_part("x[0-9]", "data.train").part);
  EXPECT_FALSE(split_part("x[a:b]", "data.train").part);
  EXPECT_FALSE(split_part("x", "data.train").part);
  error_of([] { split_part("x[:101%]", "data.train"); }, ErrorKind::kConfig);
}

TEST(FindInputs, PartsAreOfAllFilesOfTheWord) {
  const TemporaryFolder folder;
  write(folder, "a.jsonl", "{}\n{}\n\n{}\n");
  write(folder, "b.csv", "text\none\n\"two\nlines\"\n");
  write(folder, "c.txt", "text\n");
  const auto ranges = [&](const std::string& word) {
    std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> found;
    const std::vector<std::string> words{(folder.path() / word).string()};
    for (const InputFile& input : find_inputs(words, Format::kAuto, "data.train")) {
      found.push_back(
          {input.path.filename().string(), {input.rows.value().begin, input.rows.value().end}});
    }
    return found;
  };
  using Ranges = decltype(ranges(""));
  EXPECT_EQ(ranges("[ab].*[1:4]"), (Ranges{{"a.jsonl", {1, 3}}, {"b.csv", {0, 1}}}));
  EXPECT_EQ(ranges("{b.csv,a.jsonl}[:2]"), (Ranges{{"a.jsonl", {0, 2}}}));
  EXPECT_EQ(ranges("b.csv[50%:]"), (Ranges{{"b.csv", {1, 2}}}));
  error_of([&] { ranges("b.csv[2:]"); });
  error_of([&] { ranges("c.txt[:1]"); }, ErrorKind::kConfig);
}

}  // namespace inputs_test
}  // namespace lockstep::data
