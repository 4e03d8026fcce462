// Tests for contradictions between tokenizer_config.json and tokenizer.json.
#include "text/tokenizer_conflicts.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::text {
namespace {

using json = nlohmann::json;
using Strings = std::vector<std::string>;

json bert() {
  return json::parse(R"({
    "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null, "handle_chinese_chars": true},
    "post_processor": {"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
    "model": {"type": "WordPiece"}})");
}

TEST(TokenizerConflicts, WordPiece) {
  const json config{
      {"tokenizer_class", "BertTokenizerFast"},
      {"do_lower_case", true},
      {"strip_accents", nullptr},
      {"cls_token", "[CLS]"}};
  EXPECT_EQ(conflicts_of(config, bert()), Strings());
  json changed = config;
  changed["do_lower_case"] = false;
  changed["sep_token"] = {{"content", "[SEP]"}};
  EXPECT_EQ(
      conflicts_of(changed, bert()),
      (Strings{
          "do_lower_case is false, but tokenizer.json has lowercase true",
          "sep_token \"[SEP]\" is not in the post_processor"}));
  changed["tokenizer_class"] = "PreTrainedTokenizerFast";
  EXPECT_EQ(conflicts_of(changed, bert()), Strings());
}

TEST(TokenizerConflicts, Classes) {
  const json bytes{{"model", {{"type", "BPE"}}}, {"pre_tokenizer", {{"type", "ByteLevel"}}}};
  const json spaces{{"model", {{"type", "BPE"}}}, {"pre_tokenizer", {{"type", "Metaspace"}}}};
  const json prepended{
      {"model", {{"type", "BPE"}}},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}}}}}}};
  const auto of = [](const char* name, const json& tokenizer) {
    return conflicts_of({{"tokenizer_class", name}}, tokenizer).size();
  };
  EXPECT_EQ(of("GPT2Tokenizer", bytes), 0U);
  EXPECT_EQ(of("GPT2Tokenizer", spaces), 1U);
  EXPECT_EQ(of("LlamaTokenizerFast", spaces), 0U);
  EXPECT_EQ(of("LlamaTokenizerFast", bytes), 1U);
  EXPECT_EQ(of("LlamaTokenizer", prepended), 1U);
  EXPECT_EQ(of("T5Tokenizer", bytes), 1U);
  EXPECT_EQ(of("OwnTokenizer", bytes), 0U);
  EXPECT_EQ(conflicts_of(json(), json()), Strings());
}

}  // namespace
}  // namespace lockstep::text
