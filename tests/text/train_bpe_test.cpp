// Tests of BPE training.
#include "text/train_bpe.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "sample_tokenizer.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace lockstep::text {
namespace train_bpe_test {

nlohmann::json model_of(const TokenizerFiles& files) {
  return nlohmann::json::parse(files.contents.at("tokenizer.json"))["model"];
}

TEST(TrainBpe, MergesTheMostFrequentPairFirst) {
  BpeTrainingOptions options;
  options.vocabulary_size = 257 + 3;
  options.special_tokens = {"<end>"};
  BpeTrainer trainer(options);
  trainer.add("aaa aaa ab<end>ab ab ab");
  const nlohmann::json model = model_of(trainer.train());
  // " a" occurs 5 times, "ab" without a space once, " ab" 3 times, "aa" once in " aaa" and twice in
  // "aaa".
  EXPECT_EQ(model["merges"][0], (nlohmann::json{"a", "a"}));
  EXPECT_EQ(model["vocab"]["<end>"], 0);
  EXPECT_EQ(model["vocab"]["!"], 1);
  EXPECT_EQ(model["vocab"]["aa"], 257);
  EXPECT_EQ(model["vocab"].size(), 260U);
}

TEST(TrainBpe, DoesNotDependOnTheOrderOfDocuments) {
  BpeTrainingOptions options;
  options.vocabulary_size = 320;
  BpeTrainer forwards(options);
  BpeTrainer backwards(options);
  const std::vector<std::string> documents{
      "one two three", "two four", sample_text(), "three two one zero"};
  for (size_t i = 0; i < documents.size(); ++i) {
    forwards.add(documents[i]);
    backwards.add(documents[documents.size() - 1 - i]);
  }
  EXPECT_EQ(forwards.train().contents, backwards.train().contents);
}

TEST(TrainBpe, StopsWhereNoPairIsLeft) {
  BpeTrainingOptions options;
  options.vocabulary_size = 1000;
  BpeTrainer trainer(options);
  trainer.add("abab abab");
  const auto tokenizer = Tokenizer::parse(trainer.train());
  EXPECT_LT(tokenizer->vocabulary_size(), 265);
  EXPECT_EQ(tokenizer->encode("abab").size(), 1U);
}

TEST(TrainBpe, ATrainedTokenizerEncodesEverything) {
  const auto tokenizer = sample_tokenizer();
  EXPECT_EQ(tokenizer->vocabulary_size(), 360);
  EXPECT_EQ(tokenizer->bos(), 0);
  EXPECT_EQ(tokenizer->eos(), 0);
  EXPECT_EQ(tokenizer->pad(), 0);
  for (const std::string& text :
       {sample_text(),
        std::string("\u0000\u0001 never seen: \u2603 \U000E0041", 24),
        std::string(3000, 'q')}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_LT(tokenizer->encode(sample_text()).size(), sample_text().size() / 2);
}

TEST(TrainBpe, TellsWhatCannotBeTrained) {
  const auto message = [](const BpeTrainingOptions& options) {
    try {
      BpeTrainer trainer(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.vocabulary_size = 100}).find("257"), std::string::npos);
  EXPECT_NE(
      message({.vocabulary_size = int64_t{1} << 40}).find("cannot be trained"), std::string::npos);
  EXPECT_NE(message({.special_tokens = {"<a>", "<a>"}}).find("<a>"), std::string::npos);
  EXPECT_NE(message({.special_tokens = {""}}).find("special token"), std::string::npos);
  EXPECT_NE(message({.special_tokens = {"a"}}).find("special token"), std::string::npos);
  EXPECT_NE(message({.special_tokens = {"\xFF"}}).find("special token"), std::string::npos);
  EXPECT_EQ(message({}), "");
}

TEST(TrainBpe, WritesAFolderThatLoads) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "a.txt", sample_text());
  write_file_atomically(folder.path() / "empty.txt", "");
  BpeTrainingOptions options;
  options.vocabulary_size = 300;
  const auto trained = train_byte_level_bpe(
      {folder.path() / "a.txt", folder.path() / "empty.txt"}, options, folder.path() / "out");
  const auto loaded = Tokenizer::load(folder.path() / "out");
  EXPECT_EQ(loaded->fingerprint(), trained->fingerprint());
  EXPECT_EQ(loaded->encode(sample_text()), trained->encode(sample_text()));
  EXPECT_THROW(
      train_byte_level_bpe({folder.path() / "empty.txt"}, options, folder.path() / "out"), Error);
  EXPECT_THROW(
      train_byte_level_bpe({folder.path() / "missing.txt"}, options, folder.path() / "out"), Error);
}

TEST(TrainBpe, CountsIllFormedTextAsReplacementCharacters) {
  BpeTrainer good({.vocabulary_size = 270});
  BpeTrainer bad({.vocabulary_size = 270});
  good.add("a\uFFFDb a\uFFFDb");
  bad.add(
      "a\xFF"
      "b a\x80"
      "b");
  EXPECT_EQ(good.train().contents, bad.train().contents);
}

TEST(TrainBpe, IsQuickOnOneLongWord) {
  std::string word;
  for (uint32_t i = 0, state = 1; i < 400'000; ++i) {
    state = state * 1664525 + 1013904223;
    word.push_back(static_cast<char>('a' + (state >> 24) % 8));
  }
  BpeTrainer trainer({.vocabulary_size = 2000});
  trainer.add(word);
  EXPECT_EQ(Tokenizer::parse(trainer.train())->vocabulary_size(), 2000);
}

}  // namespace train_bpe_test
}  // namespace lockstep::text
