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
      {"data.train", "there is no file", "Did you mean 'train.txt'?"});
  expect_parts(error_of([&] { names_of(folder, {"no/such.txt"}); }), {"There is no folder"});
  expect_parts(error_of([&] { names_of(folder, {"*.json"}); }), {"no file matches"});
  expect_parts(
      error_of([&] { names_of(folder, {"data.bin"}); }),
      {"data.bin", "does not tell its format", "data.format=text"});
  expect_parts(error_of([&] { names_of(folder, {"empty"}); }), {"has no file of text"});
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

}  // namespace inputs_test
}  // namespace lockstep::data
