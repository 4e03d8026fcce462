// Compares tokenizer_config.json with tokenizer.json.
#include "text/tokenizer_conflicts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::text {
namespace {

using json = nlohmann::json;

/// Classes for which transformers builds the pipeline, and the kind of the model that they have.
struct ClassOfTokenizer {
  std::string_view name;
  std::string_view model;
};
constexpr std::array<ClassOfTokenizer, 14> kClasses{{
    {"BertTokenizer", "WordPiece"},
    {"DistilBertTokenizer", "WordPiece"},
    {"ElectraTokenizer", "WordPiece"},
    {"T5Tokenizer", "Unigram"},
    {"AlbertTokenizer", "Unigram"},
    {"XLMRobertaTokenizer", "Unigram"},
    {"CamembertTokenizer", "Unigram"},
    {"GPT2Tokenizer", "BPE"},
    {"RobertaTokenizer", "BPE"},
    {"GPTNeoXTokenizer", "BPE"},
    {"Qwen2Tokenizer", "BPE"},
    {"LlamaTokenizer", "BPE"},
    {"CodeLlamaTokenizer", "BPE"},
    {"GemmaTokenizer", "BPE"},
}};

json member(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

std::string class_of(const json& config) {
  const json found = member(config, "tokenizer_class");
  std::string name = found.is_string() ? found.get<std::string>() : "";
  if (name.ends_with("Fast")) {
    name.resize(name.size() - 4);
  }
  return name;
}

/// Returns the first component below `part` with this type; null: none.
json component(const json& part, std::string_view type) {
  if (part.is_object() && member(part, "type") == type) {
    return part;
  }
  json found;
  for (const json& below : part.is_structured() ? part : json::array()) {
    found = found.is_null() ? component(below, type) : found;
  }
  return found;
}

/// Returns true if a string below `part` is `text`.
bool has_text(const json& part, const std::string& text) {
  return part == text || (part.is_structured() && std::ranges::any_of(part, [&](const json& below) {
                            return has_text(below, text);
                          }));
}

/// Adds differences between options of the configuration and fields of a component.
void compare(
    const json& config,
    const json& part,
    const std::vector<std::pair<const char*, const char*>>& names,
    std::vector<std::string>& found) {
  for (const auto& [option, field] : names) {
    const json given = member(config, option);
    if (!given.is_null() && given != member(part, field)) {
      found.push_back(fmt::format(
          "{} is {}, but tokenizer.json has {} {}",
          option,
          given.dump(),
          field,
          member(part, field).dump()));
    }
  }
}

}  // namespace

std::vector<std::string> conflicts_of(const json& config, const json& tokenizer) {
  std::vector<std::string> found;
  const std::string name = class_of(config);
  const auto* const known = std::ranges::find(kClasses, name, &ClassOfTokenizer::name);
  if (known == kClasses.end()) {
    return found;
  }
  const json type = member(member(tokenizer, "model"), "type");
  const json normalizer = member(tokenizer, "normalizer");
  const json marks = member(tokenizer, "post_processor");
  if (type.is_string() && type != known->model) {
    found.push_back(
        fmt::format("tokenizer_class {} has a {} model, not {}", name, known->model, type.dump()));
    return found;
  }
  if (known->model == "BPE") {
    const bool has_metaspace = name.find("Llama") != std::string::npos || name == "GemmaTokenizer";
    const json bytes = component(member(tokenizer, "pre_tokenizer"), "ByteLevel");
    const bool has_bytes = !bytes.is_null();
    if (has_bytes == has_metaspace) {
      found.push_back(fmt::format(
          "tokenizer_class {} {} byte-level tokens", name, has_bytes ? "has no" : "has"));
    } else if (!component(normalizer, "Prepend").is_null()) {
      found.push_back(fmt::format(
          "tokenizer_class {} prepends a space to the text only, tokenizer.json also after each "
          "added token",
          name));
    }
  }
  if (member(normalizer, "type") == "BertNormalizer") {
    compare(
        config,
        normalizer,
        {{"do_lower_case", "lowercase"},
         {"strip_accents", "strip_accents"},
         {"tokenize_chinese_chars", "handle_chinese_chars"}},
        found);
  }
  for (const char* key : {"cls_token", "sep_token"}) {
    const json value = member(config, key);
    const json token = value.is_object() ? member(value, "content") : value;
    if (known->model == "WordPiece" && token.is_string() && !marks.is_null() &&
        !has_text(marks, token.get<std::string>())) {
      found.push_back(fmt::format("{} {} is not in the post_processor", key, token.dump()));
    }
  }
  return found;
}

}  // namespace lockstep::text
