// Tests of tokenizer.json components that GPT-2 does not use: normalizers, pre-tokenizers, models,
// decoders.
#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/models/model_tables.h"
#include "text/stages/decoder.h"
#include "text/stages/normalizer.h"
#include "text/stages/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace lockstep::text {
namespace components_test {

using nlohmann::json;
using Ids = std::vector<int32_t>;
using List = std::vector<std::string>;

std::string normalized(const json& description, const std::string& text) {
  NormalizedText result{text, true};
  make_normalizer(Field(description, "t"))->normalize(result);
  return result.text;
}

// The limit covers all stages together; a limit per stage would still allow exponential growth.
TEST(Normalizers, ASmallTextDoesNotTakeAllMemory) {
  const auto replace = [](const std::string& pattern, size_t times) {
    return json{
        {"type", "Replace"},
        {"pattern", {{"String", pattern}}},
        {"content", std::string(times, pattern == "a" ? 'b' : 'c')}};
  };
  const auto sequence = [&](size_t first, size_t second) {
    return json{{"type", "Sequence"}, {"normalizers", {replace("a", first), replace("b", second)}}};
  };
  const std::string text(10'000, 'a');
  EXPECT_EQ(normalized(sequence(8, 8), text).size(), 640'000U);
  for (const json& hostile : {replace("a", 1'000'000), sequence(60, 60)}) {
    EXPECT_THROW(normalized(hostile, text), Error) << hostile.at("type");
  }
}

TEST(Normalizers, DoWhatTheirNamesSay) {
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(
      normalized({{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "x"}}, "abaab"),
      "xax");
  EXPECT_EQ(
      normalized(
          {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}, "a   b c"),
      "a b c");
  EXPECT_EQ(
      normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "\u3000 a "),
      "a ");
  EXPECT_EQ(
      normalized(
          {{"type", "BertNormalizer"}, {"lowercase", true}}, "H\u00c9LLO\u0000\tx\u4e2d\u6587"),
      "hello");  // the string literal ends at the zero byte
  EXPECT_EQ(
      normalized({{"type", "BertNormalizer"}, {"lowercase", true}}, "\u00c9\tx\u4e2d"),
      "e x \u4e2d ");
  EXPECT_EQ(normalized({{"type", "Nmt"}}, "a\u200b\u0001b\n"), "a b ");
  EXPECT_EQ(
      normalized(
          {{"type", "Sequence"}, {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}}}},
          "\u00e9"),
      "e");
  EXPECT_THROW(normalized({{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}, ""), Error);
  EXPECT_THROW(
      normalized({{"type", "Precompiled"}, {"precompiled_charsmap", "////fw=="}}, ""), Error);
  EXPECT_EQ(normalized({{"type", "Precompiled"}, {"precompiled_charsmap", "AAAAAA=="}}, "a"), "a");
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : bytes + std::string(2, '\0')) {
    bits = bits << 8 | static_cast<uint8_t>(byte);
    for (count += 8; count >= 6; count -= 6) {
      text += kDigits[bits >> (count - 6) & 63];
    }
  }
  return text.substr(0, (bytes.size() * 8 + 5) / 6);
}

/// Returns a map that replaces "A" by the string at offset `place` of `replacements`.
json map_of_a(uint32_t place, const std::string& replacements) {
  constexpr uint32_t kHasLeaf = 1 << 8, kLeaf = uint32_t{1} << 31;
  std::vector<uint32_t> units('A' + 1);
  units['A'] = 'A' | kHasLeaf | 1 << 10;
  units['A' ^ 1] = place | kLeaf;
  const auto size = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string bytes(sizeof size + size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, units.data(), size);
  return {{"type", "Precompiled"}, {"precompiled_charsmap", base64(bytes + replacements)}};
}

/// Metaspace's "first" depends on whether a text still starts where the user's text did. The rules
/// are Hugging Face's.
TEST(Normalizers, TellWhetherATextBeginsWhereItDid) {
  const auto begins = [](const json& description, const std::string& text) {
    NormalizedText result{text, true};
    make_normalizer(Field(description, "t"))->normalize(result);
    return result.at_start;
  };
  const auto replace = [](const std::string& pattern, const std::string& content) {
    return json{{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
  };
  EXPECT_TRUE(begins(replace("x", "yy"), "xa"));
  EXPECT_TRUE(begins(replace("\u00e9", "e"), "\u00e9a"));
  EXPECT_TRUE(begins(replace("x+", "y"), "axx"));
  EXPECT_TRUE(begins(replace("^", "y"), "a"));
  EXPECT_FALSE(begins(replace("x", ""), "xa"));
  EXPECT_FALSE(begins(replace("x+", "y"), "xxa"));
  EXPECT_FALSE(begins(replace("x+", "yyy"), "xxa"));
  const json strip{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_TRUE(begins(strip, "a "));
  EXPECT_FALSE(begins(strip, "\u3000a"));
  EXPECT_TRUE(begins({{"type", "StripAccents"}}, "a\u0301"));
  EXPECT_FALSE(begins({{"type", "StripAccents"}}, "\u0301a"));
}

TEST(Normalizers, MakeNoHalfCharacters) {
  const std::string replacements("\u00e9\0\U0001F600\0", 8);
  EXPECT_EQ(normalized(map_of_a(0, replacements), "aA"), "a\u00e9");
  EXPECT_EQ(normalized(map_of_a(3, replacements), "aA"), "a\U0001F600");
  for (const uint32_t place : {1, 4, 5, 6, 8, 1 << 20}) {
    EXPECT_EQ(normalized(map_of_a(place, replacements), "aA"), "aA") << place;
  }
}

List pieces(const json& description, const std::string& text) {
  Pieces split{{{text, true}}, {}};
  make_pre_tokenizer(Field(description, "t"), ByteMapping::kWrite)->split(split);
  List all;
  for (const Piece& piece : split.pieces) {
    all.emplace_back(piece.text);
  }
  return all;
}

TEST(PreTokenizers, DoWhatTheirNamesSay) {
  EXPECT_EQ(pieces({{"type", "Whitespace"}}, "Hey, y_1  "), (List{"Hey", ",", "y_1"}));
  EXPECT_EQ(pieces({{"type", "WhitespaceSplit"}}, "Hey, y\u3000z "), (List{"Hey,", "y", "z"}));
  EXPECT_EQ(pieces({{"type", "BertPreTokenizer"}}, "Hey,y $1"), (List{"Hey", ",", "y", "$", "1"}));
  EXPECT_EQ(
      pieces({{"type", "Digits"}, {"individual_digits", true}}, "a12b"),
      (List{"a", "1", "2", "b"}));
  EXPECT_EQ(pieces({{"type", "Digits"}}, "a12b"), (List{"a", "12", "b"}));
  EXPECT_EQ(pieces({{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "a--b"), (List{"a", "b"}));
  EXPECT_EQ(
      pieces({{"type", "FixedLength"}, {"length", 2}}, "a\u4e2dcde"), (List{"a\u4e2d", "cd", "e"}));
  EXPECT_EQ(
      pieces({{"type", "Metaspace"}, {"replacement", "\u2581"}}, "a b  c"),
      (List{
          "\u2581"
          "a",
          "\u2581"
          "b",
          "\u2581",
          "\u2581"
          "c"}));
  EXPECT_EQ(
      pieces(
          {{"type", "Metaspace"},
           {"replacement", "_"},
           {"prepend_scheme", "never"},
           {"split", false}},
          "a b"),
      List{"a_b"});
  EXPECT_EQ(pieces({{"type", "ByteLevel"}}, "a\u00e9"), List{"\u0120a\u00c3\u00a9"});
  for (const auto& [behavior, expected] : std::vector<std::pair<std::string, List>>{
           {"Removed", {"a", "b"}},
           {"Isolated", {"a", "-", "-", "b"}},
           {"MergedWithPrevious", {"a-", "-", "b"}},
           {"MergedWithNext", {"a", "-", "-b"}},
           {"Contiguous", {"a", "--", "b"}}}) {
    EXPECT_EQ(
        pieces(
            {{"type", "Split"},
             {"pattern", {{"String", "-"}}},
             {"behavior", behavior},
             {"invert", false}},
            "a--b"),
        expected)
        << behavior;
  }
  EXPECT_THROW(
      pieces({{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}, "a"),
      Error);
  EXPECT_THROW(
      pieces({{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", "Odd"}}, "a"), Error);
  EXPECT_THROW(pieces({{"type", "FixedLength"}, {"length", 0}}, "a"), Error);
  EXPECT_THROW(pieces({{"type", "Metaspace"}, {"replacement", "ab"}}, "a"), Error);
}

std::shared_ptr<const Tokenizer> tokenizer_of(json description) {
  description["version"] = "1.0";
  return Tokenizer::parse({"", {{"tokenizer.json", description.dump()}}});
}

json word_piece() {
  return {
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"post_processor",
       {{"type", "BertProcessing"}, {"sep", {"[SEP]", 2}}, {"cls", {"[CLS]", 1}}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 10},
        {"vocab",
         {{"[UNK]", 0},
          {"[CLS]", 1},
          {"[SEP]", 2},
          {"un", 3},
          {"##aff", 4},
          {"##able", 5},
          {"##a", 6},
          {",", 7}}}}}};
}

TEST(WordPiece, TakesTheLongestTokens) {
  const auto tokenizer = tokenizer_of(word_piece());
  EXPECT_EQ(tokenizer->encode("unaffable, unaffx"), (Ids{1, 3, 4, 5, 7, 0, 2}));
  EXPECT_EQ(
      tokenizer->encode("unaaaaaaaaa", SpecialTokens::kRecognise, Template::kOmit),
      Ids{0});  // too long
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 5, 7}), "unaffable,");
  json without = word_piece();
  without["model"]["unk_token"] = "[NONE]";
  EXPECT_THROW(tokenizer_of(without)->encode("x"), Error);
  without["model"]["max_input_chars_per_word"] = -1;
  EXPECT_THROW(tokenizer_of(without), Error);
}

TEST(RowTemplates, TellWhatStandsAroundTwoTexts) {
  const auto form_of = [](const json& processor) {
    json description = word_piece();
    description["post_processor"] = processor;
    return tokenizer_of(description)->row_template();
  };
  using Named = std::pair<std::string, int32_t>;
  const Named sep{"[SEP]", 2}, cls{"[CLS]", 1};
  const RowTemplate bert = form_of({{"type", "BertProcessing"}, {"sep", sep}, {"cls", cls}});
  EXPECT_EQ(bert.pair_before, (Ids{1}));
  EXPECT_EQ(bert.between, (Ids{2}));
  EXPECT_EQ(bert.pair_after, (Ids{2}));
  EXPECT_EQ(bert.between_of_first, 1);
  EXPECT_TRUE(bert.tells_segments);
  const RowTemplate roberta = form_of({{"type", "RobertaProcessing"}, {"sep", sep}, {"cls", cls}});
  EXPECT_EQ(roberta.between, (Ids{2, 2}));
  EXPECT_FALSE(roberta.tells_segments);
  const auto token = [](const char* name, int type) {
    return json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  json written{
      {"type", "TemplateProcessing"},
      {"single", {token("c", 0), text("A", 0)}},
      {"pair", {token("c", 0), text("A", 0), token("s", 0), token("c", 1), text("B", 1)}},
      {"special_tokens", {{"c", {{"ids", {1}}}}, {"s", {{"ids", {2, 3}}}}}}};
  const RowTemplate own = form_of(written);
  EXPECT_EQ(own.before, (Ids{1}));
  EXPECT_TRUE(own.after.empty());
  EXPECT_EQ(own.between, (Ids{2, 3, 1}));
  EXPECT_EQ(own.between_of_first, 2);
  EXPECT_TRUE(own.tells_segments);
  EXPECT_TRUE(own.pair_after.empty());
  written["pair"] = {text("B", 0), text("A", 1)};
  EXPECT_THROW(form_of(written), Error);
  written["pair"] = {text("A", 0), text("C", 1)};
  EXPECT_THROW(form_of(written), Error);
}

json unigram() {
  return json::parse(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1], ["b", -1],
      ["ab", -1.5], ["abc", -9], ["c", -2], ["<0xC3>", -20], ["<0xA9>", -20]]}})");
}

TEST(Unigram, FindsTheMostProbableTokens) {
  const auto tokenizer = tokenizer_of(unigram());
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{3, 5}));
  EXPECT_EQ(
      tokenizer->encode("abxyc\u00e9"),
      (Ids{3, 0, 5, 0}));                           // adjacent unknown characters become one token
  EXPECT_EQ(tokenizer->decode(Ids{3, 5}), "ab c");  // without a decoder: joined by spaces
  json fallback = unigram();
  fallback["model"]["byte_fallback"] = true;
  EXPECT_EQ(tokenizer_of(fallback)->encode("a\u00e9"), (Ids{1, 6, 7}));
  json without = unigram();
  without["model"]["unk_id"] = nullptr;
  EXPECT_EQ(tokenizer_of(without)->encode("ab"), Ids{3});
  EXPECT_THROW(tokenizer_of(without)->encode("ax"), Error);
  without["model"]["unk_id"] = 8;
  EXPECT_THROW(tokenizer_of(without), Error);
}

/// Regression test: an incomplete character at the end of a text caused a write past the last step.
TEST(Unigram, StaysInsideItsText) {
  json model = unigram();
  model["model"]["vocab"] = json::parse(R"([["<unk>", 1], ["a", 1]])");
  model["normalizer"] = map_of_a(1, std::string("\u00e9\0", 3));
  const auto tokenizer = tokenizer_of(model);
  for (const size_t length : {0, 1, 14, 30, 100, 254, 4000}) {
    Ids expected(length, 1);
    expected.push_back(0);
    EXPECT_EQ(tokenizer->encode(std::string(length, 'a') + "A"), expected);
  }
}

TEST(WordLevel, KnowsWordsOrNot) {
  const auto tokenizer = tokenizer_of(
      {{"pre_tokenizer", {{"type", "Whitespace"}}},
       {"model", {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"a", 0}, {"?", 1}}}}}});
  EXPECT_EQ(tokenizer->encode("a b a"), (Ids{0, 1, 0}));
}

std::string decoded(const json& description, const List& tokens) {
  const auto decoders = make_decoders(Field(description, "t"));
  Decoding decoding(decoders);
  std::string text;
  for (const std::string& token : tokens) {
    text += decoding.push(token);
  }
  return text + decoding.finish();
}

TEST(Decoders, DoWhatTheirNamesSay) {
  EXPECT_EQ(
      decoded({{"type", "ByteFallback"}}, {"a", "<0xC3>", "<0xA9>", "<0xFF>", "b", "<0x41>"}),
      "a\uFFFD\uFFFD\uFFFDbA");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>"}), "\u00e9");
  EXPECT_EQ(decoded({{"type", "Metaspace"}, {"replacement", "_"}}, {"_a", "_b", "c_"}), "a bc ");
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}, {"suffix", "</w>"}}, {"a", "b</w>", "c</w>"}), "ab c");
  EXPECT_EQ(decoded({{"type", "CTC"}}, {"a", "a", "<pad>", "a", "|", "b"}), "aa b");
  EXPECT_EQ(
      decoded(
          {{"type", "Sequence"},
           {"decoders",
            {{{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}},
             {{"type", "Fuse"}},
             {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}}}}},
          {"_", "_a", "b_", "__"}),
      " ab ");
  EXPECT_THROW(
      decoded({{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}, {}), Error);
  EXPECT_THROW(decoded({{"type", "Odd"}}, {}), Error);
}

TEST(ModelTables, AreReadApart) {
  const std::string text =
      R"({"a": "\"{[", "model": {"type": "BPE", "vocab": {"\u00e9\n": 3, "\ud83d\ude00": 12} , "merges": ["a b", ["c d", "e"]], "z": [1, {}]}, "b": null})";
  const std::optional<SplitTokenizer> split = split_tokenizer(text);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->tables.vocabulary, (TokenIds{{"\u00e9\n", 3}, {"\U0001F600", 12}}));
  EXPECT_EQ(split->tables.merges, (MergePairs{{"a", "b"}, {"c d", "e"}}));
  EXPECT_EQ(
      json::parse(split->rest),
      json::parse(
          R"({"a": "\"{[", "model": {"type": "BPE", "vocab": null, "merges": null, "z": [1, {}]}, "b": null})"));
  EXPECT_EQ(read_token_ids(R"( {"a":1,"b":-2} )"), (TokenIds{{"a", 1}, {"b", -2}}));
  EXPECT_EQ(read_token_ids("{}"), TokenIds{});
  for (const char* odd :
       {"",
        "{",
        "[]",
        R"({"a"})",
        R"({"a":1,})",
        R"({"a":1.5})",
        R"({"a":1e3})",
        R"({"a":"1"})",
        R"({"a":1}x)",
        R"({"\x":1})",
        R"({"\ud800":1})",
        R"({"\udc00\ud800":1})",
        R"({"\u12":1})",
        "{\"a\nb\":1}",
        "{\"\xFF\":1}",
        R"({"a":99999999999999999999})"}) {
    EXPECT_EQ(read_token_ids(odd), std::nullopt) << odd;
  }
}

/// A modified tokenizer.json either loads and works, or throws Error.
TEST(Components, DamagedFilesNeverCrash) {
  json all = word_piece();
  all["added_tokens"] = {{{"id", 8}, {"content", "<x>"}, {"special", true}, {"lstrip", true}}};
  all["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFKC"}},
        {{"type", "BertNormalizer"}, {"lowercase", true}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+|[\\p{L}&]{,3}"}}}, {"content", " "}},
        {{"type", "Precompiled"}, {"precompiled_charsmap", "CAAAAAABAEAAAEAAYWIAYwA="}}}}};
  all["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", "(?i:[ab]+)|\\d{1,3}"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}},
        {{"type", "Digits"}}}}};
  all["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}},
        {{"type", "ByteFallback"}},
        {{"type", "Fuse"}},
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}}}}};
  json other = all;
  other["model"] = unigram()["model"];
  other.erase("added_tokens");
  other.erase("post_processor");
  std::mt19937 random(6);
  int loaded = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = (round % 2 == 0 ? all : other).dump();
    for (size_t changes = random() % 4; changes > 0; --changes) {
      const size_t at = random() % damaged.size();
      switch (random() % 5) {
        case 0:
          damaged[at] = static_cast<char>(' ' + random() % 95);
          break;
        case 1:
          damaged.erase(at, 1 + random() % 6);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 8));
          break;
        case 3:
          damaged.replace(at, 1, std::to_string(random()));
          break;
        default:
          damaged.replace(at, 1, random() % 2 == 0 ? "null" : "{}");
          break;
      }
    }
    try {
      const auto tokenizer = Tokenizer::parse({"", {{"tokenizer.json", damaged}}});
      tokenizer->decode(tokenizer->encode("ab  unaffable 123 <x> \u00e9\u4e2d\ufb01, a&b\n"));
      ++loaded;
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
    }
  }
  EXPECT_GT(loaded, 100);
}

}  // namespace components_test
}  // namespace lockstep::text
