// Converts a tokenizer to GGUF metadata.
#include "train/gguf/vocabulary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "data/chat.h"
#include "text/stages/split_patterns.h"

namespace lockstep::train::gguf {
namespace {

using Json = nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

enum TokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

[[noreturn]] void refuse(const std::string& what) {
  throw Error(
      ErrorKind::kConfig,
      fmt::format("the tokenizer cannot be written as GGUF: {}", what),
      "export the model as a folder (without --gguf), or export a folder without a tokenizer, "
      "which llama.cpp runs on token ids");
}

std::string type_of(const Json& part) {
  return part.is_object() ? part.value("type", "") : "";
}

/// Returns the members of a component of type Sequence, otherwise the component itself.
std::vector<Json> parts_of(const Json& part, const char* key) {
  if (part.is_null()) {
    return {};
  }
  return type_of(part) == "Sequence" ? part.at(key).get<std::vector<Json>>() : std::vector{part};
}

Merges merges_of(const Json& model) {
  Merges merges;
  for (const Json& merge : model.value("merges", Json::array())) {
    if (merge.is_array()) {
      merges.push_back(merge.get<std::pair<std::string, std::string>>());
    } else {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }
  return merges;
}

/// Returns llama.cpp's name of the pre-tokenizer. Empty if llama.cpp has no equivalent.
std::optional<std::string> splitting_of(const Json& tokenizer) {
  const std::vector<Json> parts =
      parts_of(tokenizer.value("pre_tokenizer", Json()), "pretokenizers");
  if (parts.empty() || type_of(parts.back()) != "ByteLevel" || parts.size() > 2 ||
      parts.back().value("add_prefix_space", true)) {
    return std::nullopt;
  }
  const bool cuts_itself = parts.back().value("use_regex", true);
  if (parts.size() == 1) {
    return cuts_itself ? std::optional("gpt-2") : std::nullopt;
  }
  const Json& first = parts.front();
  if (type_of(first) == "Digits" && first.value("individual_digits", false) && cuts_itself) {
    return "starcoder";
  }
  if (type_of(first) != "Split" || cuts_itself || first.value("behavior", "") != "Isolated" ||
      first.value("invert", false)) {
    return std::nullopt;
  }
  const auto pattern = text::known_pattern(first.at("pattern").value("Regex", ""));
  if (!pattern) {
    return std::nullopt;
  }
  switch (*pattern) {
    case text::SplitPattern::kGpt2:
      return "gpt-2";
    case text::SplitPattern::kQwen2:
      return "qwen2";
    case text::SplitPattern::kLlama3:
      return tokenizer.at("model").value("ignore_merges", false) ? "llama-bpe" : "dbrx";
  }
  return std::nullopt;
}

/// Returns the metadata of byte-level BPE.
Metadata of_bytes(const Json& tokenizer) {
  const auto splitting = splitting_of(tokenizer);
  if (!splitting) {
    refuse(
        "llama.cpp has no equivalent of its pre_tokenizer (it supports those of GPT-2, Llama 3, "
        "Qwen 2 and StarCoder)");
  }
  const Json normalizer = tokenizer.value("normalizer", Json());
  if (!normalizer.is_null() && type_of(normalizer) != "NFC") {
    refuse(fmt::format("llama.cpp does not support the normalizer {}", type_of(normalizer)));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : merges_of(tokenizer.at("model"))) {
    merges.push_back(left + " " + right);
  }
  return {
      {"tokenizer.ggml.model", "gpt2"},
      {"tokenizer.ggml.pre", *splitting},
      {"tokenizer.ggml.merges", std::move(merges)}};
}

/// Returns true if the normalizer prepends a space to the input. Empty if it does anything else.
std::optional<bool> prepends_space(const Json& tokenizer) {
  const std::string_view space = "▁";
  bool prepends = false, replaces = false;
  for (const Json& part : parts_of(tokenizer.value("normalizer", Json()), "normalizers")) {
    if (type_of(part) == "Prepend" && part.value("prepend", "") == space) {
      prepends = true;
    } else if (
        type_of(part) == "Replace" && part.at("pattern").value("String", "") == " " &&
        part.value("content", "") == space) {
      replaces = true;
    } else {
      return std::nullopt;
    }
  }
  for (const Json& part : parts_of(tokenizer.value("pre_tokenizer", Json()), "pretokenizers")) {
    if (type_of(part) == "Metaspace" && !part.value("split", true)) {
      replaces = true;
      prepends = part.value("prepend_scheme", "always") != "never";
    } else if (type_of(part) != "Split" || part.at("pattern").value("String", "") != " ") {
      return std::nullopt;  // the normalizer has already replaced the spaces
    }
  }
  return replaces ? std::optional(prepends) : std::nullopt;
}

/// Returns true if the merges match SentencePiece, which stores only tokens and their ranks. This
/// requires that all merges that produce a token are consecutive, and that every merge that the
/// vocabulary permits is present.
bool are_by_token(const Merges& merges, const Json& vocabulary) {
  std::set<std::string> done;
  std::string last;
  for (const auto& [left, right] : merges) {
    const std::string whole = left + right;
    if (whole != last && !done.insert(whole).second) {
      return false;
    }
    last = whole;
  }
  size_t possible = 0;
  for (const std::string& token : done) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      possible +=
          vocabulary.contains(token.substr(0, cut)) && vocabulary.contains(token.substr(cut));
    }
  }
  return possible == merges.size();
}

/// Returns the metadata of character-level BPE with byte fallback.
Metadata of_text(
    const Json& tokenizer,
    const std::vector<std::string>& tokens,
    std::vector<std::string>& notes) {
  const auto prepends = prepends_space(tokenizer);
  if (!prepends) {
    refuse("llama.cpp has no equivalent of its normalizer and pre_tokenizer");
  }
  const Merges merges = merges_of(tokenizer.at("model"));
  if (!are_by_token(merges, tokenizer.at("model").at("vocab"))) {
    notes.emplace_back(
        "the tokenizer's merges are not SentencePiece's: llama.cpp may tokenize some texts "
        "differently");
  }
  std::unordered_map<std::string, float> ranks;
  for (size_t i = 0; i < merges.size(); ++i) {
    ranks.emplace(merges[i].first + merges[i].second, -static_cast<float>(i));
  }
  std::vector<float> scores;
  for (const std::string& token : tokens) {
    const auto found = ranks.find(token);
    scores.push_back(found == ranks.end() ? 0 : found->second);
  }
  return {
      {"tokenizer.ggml.model", "llama"},
      {"tokenizer.ggml.pre", "default"},
      {"tokenizer.ggml.scores", std::move(scores)},
      {"tokenizer.ggml.add_space_prefix", *prepends}};
}

/// Returns the token type of each id.
std::vector<int32_t> types_of(
    const text::Tokenizer& tokenizer,
    const Json& json,
    bool has_bytes,
    const std::vector<std::string>& tokens) {
  std::map<int64_t, bool> added;
  for (const Json& token : json.value("added_tokens", Json::array())) {
    added[token.at("id").get<int64_t>()] = token.value("special", false);
  }
  const Json unknown = json.at("model").value("unk_token", Json());
  std::vector<int32_t> types;
  for (int32_t id = 0; id < std::ssize(tokens); ++id) {
    const std::string& token = tokens[static_cast<size_t>(id)];
    const auto found = added.find(id);
    const bool is_byte =
        has_bytes && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    types.push_back(
        !tokenizer.token(id)                  ? kUnused
        : has_bytes && unknown == Json(token) ? kUnknown
        : found != added.end()                ? (found->second ? kControl : kUserDefined)
        : is_byte                             ? kByte
                                              : kNormal);
  }
  return types;
}

/// Returns the token besides EOS with which a text ends: the chat template's end of a turn if it is
/// one of them, otherwise the last.
std::optional<int64_t> end_of_turn(
    const text::Tokenizer& tokenizer,
    const std::vector<int64_t>& stop_tokens,
    std::optional<int64_t> eos) {
  std::vector<int64_t> others = stop_tokens;
  std::erase_if(others, [&](int64_t token) { return token == eos; });
  if (others.size() > 1) {
    const std::optional<int64_t> by_template = data::end_of_turn_token(tokenizer);
    if (by_template && std::ranges::find(others, *by_template) != others.end()) {
      return by_template;
    }
  }
  return others.empty() ? std::nullopt : std::optional(others.back());
}

void add_specials(
    const text::Tokenizer& tokenizer,
    const model::ModelConfig& config,
    const std::vector<int64_t>& stop_tokens,
    Metadata& metadata) {
  const auto add = [&](const char* name, std::optional<int64_t> id) {
    if (id && *id >= 0 && *id < config.vocab_size) {
      metadata.emplace_back(
          fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
    }
  };
  const auto first = [](std::optional<int32_t> id, std::optional<int64_t> otherwise) {
    return id ? std::optional<int64_t>(*id) : otherwise;
  };
  const std::optional<int64_t> eos = first(
      tokenizer.eos(), stop_tokens.empty() ? std::nullopt : std::optional(stop_tokens.front()));
  add("bos", first(tokenizer.bos(), config.bos_token_id));
  add("eos", eos);
  add("eot", end_of_turn(tokenizer, stop_tokens, eos));
  add("padding", first(tokenizer.pad(), config.pad_token_id));
  const text::RowTemplate& row = tokenizer.row_template();
  const auto holds = [](const std::vector<int32_t>& ids, std::optional<int32_t> id) {
    return id && std::find(ids.begin(), ids.end(), *id) != ids.end();
  };
  metadata.emplace_back("tokenizer.ggml.add_bos_token", holds(row.before, tokenizer.bos()));
  metadata.emplace_back("tokenizer.ggml.add_eos_token", holds(row.after, tokenizer.eos()));
  if (auto source = data::ChatTemplate::source_of(tokenizer)) {
    metadata.emplace_back("tokenizer.chat_template", std::move(*source));
  }
}

}  // namespace

Metadata tokenizer_metadata(
    const text::Tokenizer* tokenizer,
    const model::ModelConfig& config,
    const std::vector<int64_t>& stop_tokens,
    std::vector<std::string>& notes) {
  if (tokenizer == nullptr) {
    notes.emplace_back("the model has no tokenizer: llama.cpp runs it on token ids");
    return {{"tokenizer.ggml.model", "none"}};
  }
  if (tokenizer->vocabulary_size() > config.vocab_size) {
    refuse(fmt::format(
        "it has {} ids, but the model has {} rows",
        tokenizer->vocabulary_size(),
        config.vocab_size));
  }
  const Json json = parse_json(tokenizer->files().at("tokenizer.json"), "tokenizer.json");
  const Json& model = json.at("model");
  if (type_of(model) != "BPE") {
    refuse(
        fmt::format("its model is {}, but only byte-pair encoding is supported", type_of(model)));
  }
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < config.vocab_size; ++id) {
    tokens.push_back(tokenizer->token(id).value_or(fmt::format("[PAD{}]", id)));
  }
  const bool falls_back = model.value("byte_fallback", false);
  Metadata metadata = falls_back ? of_text(json, tokens, notes) : of_bytes(json);
  metadata.emplace_back(
      "tokenizer.ggml.token_type", types_of(*tokenizer, json, falls_back, tokens));
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  if (const auto unknown = model.value("unk_token", Json()); unknown.is_string()) {
    if (const auto id = tokenizer->find(unknown.get<std::string>())) {
      metadata.emplace_back("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*id));
    }
  }
  add_specials(*tokenizer, config, stop_tokens, metadata);
  return metadata;
}

}  // namespace lockstep::train::gguf
