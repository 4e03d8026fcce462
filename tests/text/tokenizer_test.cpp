// Tests of loading tokenizers, encoding and decoding.
#include "text/tokenizer.h"

#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "sample_tokenizer.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace tokenizer_test {

using Ids = std::vector<int32_t>;

TEST(Tokenizer, EncodesAndDecodesAsGpt2) {
  SKIP_WITHOUT_SHARED_DATA("gpt2/vocab.json");
  const auto tokenizer = Tokenizer::load(shared_data() / "gpt2");
  EXPECT_EQ(tokenizer->vocabulary_size(), 50257);
  EXPECT_EQ(tokenizer->eos(), 50256);
  EXPECT_EQ(tokenizer->bos(), 50256);
  EXPECT_EQ(tokenizer->pad(), std::nullopt);
  EXPECT_EQ(
      tokenizer->encode("Hello world<|endoftext|>  it's 2024!\n\n x"),
      (Ids{15496, 995, 50256, 220, 340, 338, 48609, 0, 628, 2124}));
  EXPECT_EQ(tokenizer->decode(Ids{15496, 995, 50256, 220}), "Hello world<|endoftext|> ");
  EXPECT_EQ(tokenizer->decode(Ids{15496, 50256, 995}, DecodedSpecials::kSkip), "Hello world");
  EXPECT_EQ(tokenizer->find("\u0120world"), 995);
  EXPECT_EQ(tokenizer->token(995), "\u0120world");
  EXPECT_TRUE(tokenizer->is_special(50256));
  EXPECT_FALSE(tokenizer->is_special(995));
}

TEST(Tokenizer, SavesTwoFilesAsATokenizerJsonToo) {
  SKIP_WITHOUT_SHARED_DATA("gpt2/vocab.json");
  const auto tokenizer = Tokenizer::load(shared_data() / "gpt2");
  const TemporaryFolder folder;
  tokenizer->save(folder.path() / "a");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "a" / "merges.txt"));
  const auto again = Tokenizer::load(folder.path() / "a" / "tokenizer.json");
  const std::string text = "caf\u00e9 \u4f60\u597d<|endoftext|> 12 345\n";
  EXPECT_EQ(again->encode(text), tokenizer->encode(text));
  EXPECT_EQ(again->vocabulary_size(), 50257);
}

TEST(Tokenizer, TakesSpecialTokensAsTextOnRequest) {
  const auto tokenizer = sample_tokenizer();
  const std::string text = "a<|endoftext|>b<|user|>";
  EXPECT_EQ(tokenizer->encode(text)[1], 0);
  const Ids plain = tokenizer->encode(text, SpecialTokens::kAsText);
  for (const int32_t id : plain) {
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(tokenizer->decode(plain), text);
}

TEST(Tokenizer, TakesIllFormedTextAsReplacementCharacters) {
  const auto tokenizer = sample_tokenizer();
  EXPECT_EQ(tokenizer->encode("a\xFF\xE4\xB8z"), tokenizer->encode("a\uFFFD\uFFFDz"));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST(Tokenizer, LeavesOutIdsThatAreNoToken) {
  const auto tokenizer = sample_tokenizer();
  Ids ids = tokenizer->encode("fox");
  ids.insert(ids.begin(), {-1, 360, 1 << 30, INT32_MIN});
  EXPECT_EQ(tokenizer->decode(ids), "fox");
}

TEST(Tokenizer, EncodesAlikeOnManyThreads) {
  const auto tokenizer = sample_tokenizer();
  const Ids expected = tokenizer->encode(sample_text());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        wrong[i] += tokenizer->encode(sample_text()) == expected ? 0 : 1;
        wrong[i] += tokenizer->decode(expected) == sample_text() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, FingerprintsItsFiles) {
  TokenizerFiles files = sample_files();
  const std::string fingerprint = Tokenizer::parse(files)->fingerprint();
  EXPECT_EQ(fingerprint.size(), 32U);
  EXPECT_EQ(Tokenizer::parse(files)->fingerprint(), fingerprint);
  nlohmann::json json = nlohmann::json::parse(files.contents["tokenizer.json"]);
  json["pre_tokenizer"]["add_prefix_space"] = true;
  files.contents["tokenizer.json"] = json.dump();
  EXPECT_NE(Tokenizer::parse(files)->fingerprint(), fingerprint);
}

TEST(StreamDecoder, GivesWholeCharactersAtOnce) {
  const auto tokenizer = sample_tokenizer();
  const auto byte = [&](uint8_t value) {
    const Ids ids = Ids{*tokenizer->find(
        value == 0xF0   ? "\u00f0"
        : value == 0x9F ? "\u0141"
        : value == 0x98 ? "\u013a"
                        : "\u0122")};
    return ids[0];
  };
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(byte(0xF0)), "");
  EXPECT_EQ(decoder.push(byte(0x9F)), "");
  EXPECT_EQ(decoder.push(byte(0x98)), "");
  EXPECT_EQ(decoder.push(byte(0x80)), "\U0001F600");
  EXPECT_EQ(decoder.push(*tokenizer->find("a")), "a");
  EXPECT_EQ(decoder.push(byte(0xF0)), "");
  EXPECT_EQ(decoder.push(*tokenizer->find("a")), "\uFFFDa");
  EXPECT_EQ(decoder.push(byte(0xF0)), "");
  EXPECT_EQ(decoder.push(byte(0x9F)), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(StreamDecoder, EqualsDecodingOfTheWhole) {
  const auto tokenizer = sample_tokenizer();
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Ids ids(random() % 40);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % 362);
    }
    const auto specials = round % 2 == 0 ? DecodedSpecials::kKeep : DecodedSpecials::kSkip;
    StreamDecoder decoder(tokenizer, specials);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_EQ(valid_utf8_prefix(part), part.size());
      text += part;
    }
    text += decoder.finish();
    ASSERT_EQ(text, tokenizer->decode(ids, specials));
  }
}

/// Returns the error of a tokenizer.json with one value changed.
std::string error_of(const std::string& pointer, const nlohmann::json& value) {
  TokenizerFiles files = sample_files();
  files.place = "m";
  nlohmann::json json = nlohmann::json::parse(files.contents["tokenizer.json"]);
  json[nlohmann::json::json_pointer(pointer)] = value;
  files.contents["tokenizer.json"] = json.dump();
  try {
    Tokenizer::parse(files);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    return error.message();
  }
  return "";
}

TEST(TokenizerErrors, NameFileKeyAndProblem) {
  EXPECT_EQ(error_of("/version", "1.0"), "");
  EXPECT_EQ(error_of("/version", "2.0"), "m/tokenizer.json: has version \"2.0\"");
  EXPECT_EQ(
      error_of("/model/type", "Magic"), "m/tokenizer.json: model has the unknown type \"Magic\"");
  EXPECT_EQ(
      error_of("/model/vocab", 3),
      "m/tokenizer.json: model.vocab should be an object that maps tokens to ids");
  EXPECT_EQ(
      error_of("/model/vocab/a", "x"),
      "m/tokenizer.json: model.vocab has an id for \"a\" that is not a whole number");
  EXPECT_EQ(
      error_of("/model/vocab/a", 1e15),
      "m/tokenizer.json: model.vocab has an id for \"a\" that is not a whole number");
  EXPECT_EQ(
      error_of("/model/vocab/a", int64_t{1} << 50),
      "m/tokenizer.json: model.vocab: \"a\" has the invalid id 1125899906842624");
  EXPECT_EQ(
      error_of("/model/merges/3", "a b c"),
      "m/tokenizer.json: model.merges has an invalid entry at 3: expected two tokens separated "
      "by one space");
  EXPECT_EQ(
      error_of("/model/byte_fallback", 1),
      "m/tokenizer.json: model.byte_fallback should be true or false, but is number");
  EXPECT_EQ(
      error_of("/model/dropout", 0.1),
      "m/tokenizer.json: model.dropout is not 0: BPE dropout is not supported");
  EXPECT_EQ(
      error_of("/added_tokens/1/id", 7),
      "m/tokenizer.json: added_tokens[1]: \"<|user|>\" has the id 7, but the next free id is 1");
  EXPECT_EQ(
      error_of("/pre_tokenizer/type", "Odd"),
      "m/tokenizer.json: pre_tokenizer has the unknown type \"Odd\"");
  EXPECT_EQ(
      error_of("/decoder", nlohmann::json::object()),
      "m/tokenizer.json: decoder lacks the key \"type\"");
  EXPECT_EQ(
      error_of("/normalizer", {{"type", "Odd"}}),
      "m/tokenizer.json: normalizer has the unknown type \"Odd\"");
  EXPECT_EQ(
      error_of(
          "/post_processor", {{"type", "BertProcessing"}, {"sep", {"x", -5}}, {"cls", {"y", 1}}}),
      "m/tokenizer.json: post_processor.sep[1] should be an id from 0 to 16777215");
  EXPECT_EQ(
      error_of(
          "/post_processor", {{"type", "BertProcessing"}, {"sep", {"x", 9999}}, {"cls", {"y", 0}}}),
      "m/tokenizer.json: post_processor adds the id 9999, but the highest id of the vocabulary "
      "is 359");
}

TEST(TokenizerErrors, NameTheFileThatAddsTokens) {
  EXPECT_EQ(error_of("", "x"), "m/tokenizer.json: should be an object, but is string");
  EXPECT_EQ(error_of("/model", 3), "m/tokenizer.json: model should be an object, but is number");
  EXPECT_EQ(
      error_of("/added_tokens/0/content", 3),
      "m/tokenizer.json: added_tokens[0].content should be a string, but is number");
  const auto error_of_config = [](const std::string& content) -> std::string {
    TokenizerFiles files = sample_files();
    files.place = "m";
    files.contents["tokenizer_config.json"] = content;
    try {
      Tokenizer::parse(files);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(error_of_config("[]"), "m/tokenizer_config.json: should be an object, but is array");
  EXPECT_EQ(
      error_of_config(R"({"eos_token": {"content": 3}})"),
      "m/tokenizer_config.json: eos_token.content should be a string, but is number");
  EXPECT_EQ(
      error_of_config(R"({"added_tokens_decoder": {"9": {"content": "x", "lstrip": 1}}})"),
      "m/tokenizer_config.json: added_tokens_decoder[\"9\"].lstrip should be true or false, "
      "but is number");
}

TEST(TokenizerErrors, TellWhatWasLookedFor) {
  const TemporaryFolder folder;
  try {
    Tokenizer::load(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        error.message().find("neither tokenizer.json nor vocab.json and merges.txt"),
        std::string::npos);
    EXPECT_NE(error.remedy().find("lockstep tokenizer train"), std::string::npos);
  }
  EXPECT_THROW(Tokenizer::load(folder.path() / "missing"), Error);
  write_file_atomically(folder.path() / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  EXPECT_THROW(Tokenizer::load(folder.path()), Error);
  write_file_atomically(folder.path() / "merges.txt", "#version: 0.2\na b c\n");
  try {
    Tokenizer::load(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("merges.txt: line 2"), std::string::npos) << error.what();
  }
  write_file_atomically(folder.path() / "merges.txt", "#version: 0.2\r\na b\r\n");
  EXPECT_EQ(Tokenizer::load(folder.path())->encode("ab"), Ids{2});
  write_file_atomically(folder.path() / "vocab.json", "[1]");
  EXPECT_THROW(Tokenizer::load(folder.path()), Error);
}

TEST(TokenizerErrors, ReadSpecialTokensFromEitherFile) {
  TokenizerFiles files{"", {{"vocab.json", R"({"a": 0, "<s>": 1})"}, {"merges.txt", ""}}};
  files.contents["special_tokens_map.json"] =
      R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>"})";
  const auto tokenizer = Tokenizer::parse(files);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);  // not in the vocabulary, so its id is appended
  EXPECT_EQ(tokenizer->encode("a</s><s>"), (Ids{0, 2, 1}));
  files.contents["tokenizer_config.json"] = R"({"tokenizer_class": "BartTokenizer"})";
  EXPECT_THROW(Tokenizer::parse(files), Error);
  files.contents["tokenizer_config.json"] = R"({"bos_token": 3})";
  EXPECT_THROW(Tokenizer::parse(files), Error);
}

/// A modified tokenizer.json either loads and works, or throws Error.
TEST(TokenizerErrors, DamagedFilesNeverCrash) {
  const std::string good = sample_files(280).contents.at("tokenizer.json");
  std::mt19937 random(5);
  int loaded = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = good;
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % damaged.size();
      const size_t length = 1 + random() % 12;
      switch (random() % 6) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, length);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), length));
          break;
        case 3:
          damaged.resize(at + 1);
          break;
        case 4:
          damaged.replace(at, 1, std::to_string(random()));
          break;
        default:
          damaged.replace(at, 1, random() % 2 == 0 ? "null" : "\"\\u0000\"");
          break;
      }
    }
    try {
      const auto tokenizer = Tokenizer::parse({"", {{"tokenizer.json", damaged}}});
      tokenizer->decode(tokenizer->encode("a fox <|endoftext|> \u4e2d \n"));
      ++loaded;
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
    }
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace tokenizer_test
}  // namespace lockstep::text
