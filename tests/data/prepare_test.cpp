// Tests of dataset preparation: tokenization, cache and validation split.
#include "data/prepare.h"

#include <atomic>
#include <set>

#include "data/sequences.h"
#include "data/split.h"
#include "data/token_dataset.h"
#include "data_testing.h"

namespace lockstep::data {
namespace prepare_test {

namespace fs = std::filesystem;

/// Returns the documents of a token file of byte_encoder() as text, with 256 and 257 as $ and ^ and
/// the prompt in brackets.
std::vector<std::string> texts_of(const fs::path& path) {
  const auto set = TokenDataset::open(path);
  std::vector<std::string> texts;
  for (int64_t d = 0; d < set->documents(); ++d) {
    const DocumentSpan span = set->document(d);
    std::string& text = texts.emplace_back();
    for (int64_t at = span.begin; at < span.end; ++at) {
      const int64_t id = set->token(at);
      text += id == 256 ? '$' : id == 257 ? '^' : static_cast<char>(id);
      text += span.prompt_end == at + 1 ? "|" : "";
    }
  }
  return texts;
}

struct Case {
  TemporaryFolder folder;
  DataOptions options;
  Encoder encoder = byte_encoder();
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);

  Case() {
    options.cache_dir = folder.path() / "cache" / "deep";
    encoder.encode = [calls = calls, inner = encoder.encode](std::string_view text) {
      ++*calls;
      return inner(text);
    };
  }
  void train(const std::string& name, std::string_view text) {
    options.train.push_back(write(folder, name, text).string());
  }
  PreparedData run() const { return prepare_data(options, encoder); }
};

TEST(Prepare, PutsFilesOfAllKindsInOneStream) {
  Case c;
  c.train("a.txt", "one\ntwo\n");
  c.train("b.jsonl.gz", gzip("{\"text\": \"three\"}\n{\"text\": \"\"}\n{\"text\": \"four\"}"));
  c.train("c.csv.zst", zstd("id,text\n1,\"fi,ve\"\n"));
  c.train("empty.txt", "");
  c.options.text_field = "text";
  EXPECT_EQ(
      texts_of(c.run().train),
      (std::vector<std::string>{"one\ntwo\n$", "three$", "four$", "fi,ve$"}));
  c.encoder.begin = 257;
  EXPECT_EQ(texts_of(c.run().train)[1], "^three$");
  c.encoder.end.reset();
  EXPECT_EQ(texts_of(c.run().train)[1], "^three");
  EXPECT_TRUE(c.run().validation.empty());
}

TEST(Prepare, MasksPrompts) {
  Case c;
  c.options.prompt = Prompt::kAlpaca;
  c.train("a.jsonl", R"({"instruction": "Go.", "output": "Gone."})");
  const auto texts = texts_of(c.run().train);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_TRUE(texts[0].ends_with("### Response:|Gone.$")) << texts[0];
  c.encoder.begin = 257;
  EXPECT_TRUE(texts_of(c.run().train)[0].starts_with("^Below"));
  EXPECT_TRUE(texts_of(c.run().train)[0].ends_with("### Response:|Gone.$"));
}

TEST(Prepare, TokenizesOnceAndAgainWhenAnythingChanges) {
  Case c;
  c.train("a.txt", "some text");
  const fs::path first = c.run().train;
  const int calls = *c.calls;
  EXPECT_EQ(c.run().train, first);
  EXPECT_EQ(*c.calls, calls);  // from the cache
  write(c.folder, "b.txt", "some text");
  c.options.train = {(c.folder.path() / "b.txt").string()};
  EXPECT_EQ(c.run().train, first);  // the cache key is the contents, not the name
  EXPECT_EQ(*c.calls, calls);
  std::set<fs::path> paths{first};
  const auto changed = [&] { return paths.insert(c.run().train).second; };
  write(c.folder, "b.txt", "Some text");
  EXPECT_TRUE(changed());
  c.encoder.fingerprint = "other";
  EXPECT_TRUE(changed());
  c.encoder.end = 255;
  EXPECT_TRUE(changed());
  c.options.text_documents = TextDocuments::kLine;
  EXPECT_TRUE(changed());
  c.options.invalid_utf8 = InvalidUtf8::kReplace;
  EXPECT_TRUE(changed());
  c.options.train.push_back(c.options.train[0] + ".md");
  write(c.folder, "b.txt.md", "more");
  EXPECT_TRUE(changed());
}

TEST(Prepare, MakesDamagedFilesAgain) {
  Case c;
  c.train("a.txt", "some text");
  const fs::path path = c.run().train;
  const std::string good = read_file(path);
  std::string damaged = good;
  damaged[4097] ^= 1;
  for (const std::string& bad : {damaged, good.substr(0, 4100), std::string(), std::string("x")}) {
    write(c.folder, "cache/deep/" + path.filename().string(), bad);
    EXPECT_EQ(c.run().train, path);
    EXPECT_EQ(read_file(path), good);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
}

TEST(Prepare, LeavesNothingOfAFailedRun) {
  Case c;
  c.train("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n");
  expect_parts(
      error_of([&] { c.run(); }), {"a.jsonl, line 2", "of type number", "tokenizing data.train"});
  EXPECT_TRUE(fs::is_empty(c.options.cache_dir));
  c.options.train = {write(c.folder, "e.txt", "").string()};
  expect_parts(error_of([&] { c.run(); }), {"data.train: the files contain no text"});
  EXPECT_TRUE(fs::is_empty(c.options.cache_dir));
}

TEST(Prepare, TheFirstErrorOfTheFilesWins) {
  for (const int threads : {1, 2, 5}) {
    Case c;
    c.options.threads = threads;
    std::string text;
    for (int i = 1; i <= 40'000; ++i) {
      text += i == 12'345 || i == 39'000 ? "{\"text\": 0}\n" : "{\"text\": \"some words\"}\n";
    }
    c.train("a.jsonl", text + "{");
    c.train("missing.jsonl.gz", "not gzip");
    expect_parts(error_of([&] { c.run(); }), {"a.jsonl, line 12345"});
  }
}

TEST(Prepare, DoesNotDependOnThreads) {
  std::string first;
  for (const int threads : {1, 2, 7}) {
    Case c;
    c.options.threads = threads;
    c.options.validation_fraction = 0.1;
    std::string lines;
    for (int i = 0; i < 30'000; ++i) {
      lines += "{\"text\": \"line " + std::to_string(i * 7919) + "\"}\n";
    }
    std::string words;
    while (words.size() < 2'000'000) {
      words += "word " + std::to_string(words.size()) + (words.size() % 7 == 0 ? "\n" : " ");
    }
    c.train("a.jsonl", lines);
    c.train("b.txt", words);
    const PreparedData made = c.run();
    const std::string bytes = read_file(made.train) + read_file(made.validation);
    EXPECT_TRUE(first.empty() || first == bytes);
    first = bytes;
  }
}

TEST(Prepare, PartsOfOneDocumentAreOneDocument) {
  Case c;
  std::string text;
  while (text.size() < 1'000'000) {
    text += "many words ";
  }
  c.train("a.txt", text);
  EXPECT_EQ(texts_of(c.run().train), (std::vector<std::string>{text + "$"}));
  EXPECT_GT(*c.calls, 2);
  c.encoder.pieces = false;
  *c.calls = 0;
  EXPECT_EQ(texts_of(c.run().train), (std::vector<std::string>{text + "$"}));
  EXPECT_EQ(*c.calls, 1);
}

TEST(Prepare, HoldsOutSharesOfDocuments) {
  Case c;
  c.options.validation_fraction = 0.1;
  c.options.test_fraction = 0.05;
  std::string lines;
  std::multiset<std::string> all;
  for (int i = 0; i < 1000; ++i) {
    lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
    all.insert("document " + std::to_string(i) + "$");
  }
  c.train("a.jsonl", lines);
  const PreparedData made = c.run();
  const auto train = texts_of(made.train);
  const auto validation = texts_of(made.validation);
  const auto test = texts_of(made.test);
  EXPECT_EQ(validation.size(), 100U);
  EXPECT_NEAR(static_cast<double>(test.size()), 50, 1);
  std::multiset<std::string> joined(train.begin(), train.end());
  joined.insert(validation.begin(), validation.end());
  joined.insert(test.begin(), test.end());
  EXPECT_EQ(joined, all);
  c.options.split_seed = 1;
  EXPECT_NE(texts_of(c.run().validation), validation);
  // Explicit validation files take precedence over a split fraction.
  c.options.validation = {write(c.folder, "v.txt", "held out").string()};
  EXPECT_EQ(texts_of(c.run().validation), (std::vector<std::string>{"held out$"}));
}

TEST(Prepare, HoldsOutSectionsOfPlainText) {
  Case c;
  c.options.validation_fraction = 0.1;
  std::string text;
  for (int i = 0; text.size() < 60'000; ++i) {
    text += "Paragraph " + std::to_string(i) + " says this and that.\n\n";
  }
  c.train("a.txt", text);
  const PreparedData made = c.run();
  const auto train = TokenDataset::open(made.train);
  const auto validation = TokenDataset::open(made.validation);
  const int64_t sections = train->documents() + validation->documents();
  EXPECT_EQ(train->tokens() + validation->tokens(), static_cast<int64_t>(text.size()) + sections);
  EXPECT_NEAR(
      static_cast<double>(validation->tokens()) / static_cast<double>(text.size()), 0.1, 0.03);
  EXPECT_GE(validation->documents(), 3);
}

TEST(Prepare, SaysWhenNothingIsHeldOut) {
  Case c;
  c.options.validation_fraction = 0.01;
  c.train("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  // With fewer than a hundred documents a random split may hold out none, which is an error.
  for (c.options.split_seed = 0; c.options.split_seed < 20; ++c.options.split_seed) {
    try {
      c.run();
    } catch (const Error& error) {
      expect_parts(error.what(), {"no document is left for the validation split"});
      return;
    }
  }
  FAIL() << "of two documents one in a hundred was found twenty times";
}

TEST(Prepare, ListsAllProblemsOfOptions) {
  Case c;
  c.options.validation_fraction = 2;
  c.options.test_fraction = -1;
  const std::string error = error_of([&] { c.run(); }, ErrorKind::kConfig);
  expect_parts(error, {"data.validation_fraction=2", "data.test_fraction=-1", "no data is set"});
  Case d;
  d.train("a.txt", "x");
  d.encoder.end = 259;
  expect_parts(error_of([&] { d.run(); }), {"special tokens"});
  d.encoder = byte_encoder();
  write(d.folder, "cache", "a file where the folder should be");
  expect_parts(error_of([&] { d.run(); }), {"cannot create the folder"});
}

TEST(Prepare, RemovesWhatDeadProcessesLeft) {
  Case c;
  c.train("a.txt", "x");
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string dead = "cache/deep/a.tokens.tmp-" + std::string(host.data()) + "-2147483646-0";
  const std::string alive = "cache/deep/a.tokens.tmp-" + std::string(host.data()) + "-1-0-ends";
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const std::string& name : {dead, alive}) {
    fs::last_write_time(write(c.folder, name, "x"), old);
  }
  c.run();
  EXPECT_FALSE(fs::exists(c.folder.path() / dead));
  EXPECT_TRUE(fs::exists(c.folder.path() / alive));
}

TEST(Split, IsExactAndNeverEmpty) {
  for (const double fraction : {0.5, 0.3, 0.1, 0.07, 0.01, 1.0 / 3, 0.999}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      StratifiedChoice choice(fraction, seed);
      int64_t chosen = 0;
      for (int64_t i = 1; i <= 2000; ++i) {
        chosen += choice.next() ? 1 : 0;
        ASSERT_NEAR(static_cast<double>(chosen), static_cast<double>(i) * fraction, 1.01);
      }
      EXPECT_GE(chosen, 1);
    }
  }
  StratifiedChoice none(0, 1);
  EXPECT_FALSE(none.next());
}

}  // namespace prepare_test
}  // namespace lockstep::data
