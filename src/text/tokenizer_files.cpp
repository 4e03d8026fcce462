// Reads tokenizer files from disk and converts the two-file GPT-2 format to tokenizer.json.
#include "text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/first_rank.h"
#include "base/format.h"
#include "base/json.h"
#include "text/models/fields.h"
#include "text/tokenizer_conflicts.h"

namespace lockstep::text {
namespace {

using json = nlohmann::json;

/// Files that affect ids or the text of chats.
constexpr std::array<const char*, 7> kFileNames{
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja"};
/// Files that other programs read. They are copied with the tokenizer.
constexpr std::array<const char*, 5> kKeptNames{
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "chat_template.json"};
constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kEndOfText = "<|endoftext|>";

std::string place_of(const TokenizerFiles& files, const std::string& name) {
  return files.place.empty() ? name : files.place + "/" + name;
}

std::optional<json> read_optional(const TokenizerFiles& files, const std::string& name) {
  const auto found = files.contents.find(name);
  if (found == files.contents.end()) {
    return std::nullopt;
  }
  return parse_json(found->second, place_of(files, name));
}

/// Returns the name of a token that is given as a string or an object with "content".
std::optional<std::string> token_name(const Field& field, std::string_view key) {
  const std::optional<Field> token = field.find(key);
  if (!token) {
    return std::nullopt;
  }
  return token->is_object() ? token->at("content").string() : token->string();
}

void read_names(const TokenizerFiles& files, const std::string& name, SpecialNames& names) {
  const std::optional<json> parsed = read_optional(files, name);
  if (!parsed) {
    return;
  }
  const Field field(*parsed, place_of(files, name) + ":");
  const auto fill = [&](std::optional<std::string>& slot, std::string_view key) {
    const std::optional<std::string> token = token_name(field, key);  // checks its type
    slot = slot ? slot : token;
  };
  fill(names.bos, "bos_token");
  fill(names.eos, "eos_token");
  fill(names.pad, "pad_token");
  fill(names.unk, "unk_token");
  fill(names.mask, "mask_token");
}

/// Returns the merges listed in merges.txt.
MergePairs merges_of(const TokenizerFiles& files) {
  const std::string place = place_of(files, "merges.txt");
  MergePairs merges;
  std::string_view rest = files.contents.at("merges.txt");
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (text.ends_with('\r')) {
      text.remove_suffix(1);
    }
    if (text.starts_with("#version") || (text.empty() && rest.empty())) {
      continue;
    }
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: line {} is not two tokens separated by one space: \"{}\"", place, line, text),
          "download the file again");
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

TokenIds read_vocabulary(const TokenizerFiles& files) {
  if (std::optional<TokenIds> ids = read_token_ids(files.contents.at("vocab.json"))) {
    return *std::move(ids);
  }
  // The fast parser failed. Parses the whole file, which reports the error.
  const json parsed = *read_optional(files, "vocab.json");
  TokenIds ids;
  Field(parsed, place_of(files, "vocab.json") + ":")
      .each([&](const std::string& token, const Field& id) {
        ids.emplace_back(token, id.integer());
      });
  return ids;
}

std::optional<int64_t> find_token(const TokenIds& vocabulary, const std::string& token) {
  const auto found = std::find_if(vocabulary.begin(), vocabulary.end(), [&](const auto& entry) {
    return entry.first == token;
  });
  return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
}

/// Returns the special token names of the two-file format, which are added to its vocabulary.
std::vector<std::string> special_tokens(const TokenizerFiles& files, const TokenIds& vocabulary) {
  const SpecialNames names = read_special_names(files);
  std::vector<std::string> tokens;
  for (const auto& name : {names.bos, names.eos, names.unk, names.pad, names.mask}) {
    if (name && std::find(tokens.begin(), tokens.end(), *name) == tokens.end()) {
      tokens.push_back(*name);
    }
  }
  if (tokens.empty() && find_token(vocabulary, kEndOfText)) {
    tokens.emplace_back(kEndOfText);
  }
  return tokens;
}

json added_token(int64_t id, const std::string& content, bool special) {
  return {
      {"id", id},
      {"content", content},
      {"single_word", false},
      {"lstrip", false},
      {"rstrip", false},
      {"normalized", !special},
      {"special", special}};
}

/// Returns the added tokens in ascending id order: special tokens and those in added_tokens.json.
json added_tokens(const TokenizerFiles& files, const TokenIds& vocabulary) {
  std::map<int64_t, json> by_id;
  const std::vector<std::string> specials = special_tokens(files, vocabulary);
  const auto is_special = [&](const std::string& token) {
    return std::find(specials.begin(), specials.end(), token) != specials.end();
  };
  if (const std::optional<json> added = read_optional(files, "added_tokens.json")) {
    Field(*added, place_of(files, "added_tokens.json") + ":")
        .each([&](const std::string& token, const Field& id) {
          by_id[id.integer()] = added_token(id.integer(), token, is_special(token));
        });
  }
  int64_t next = static_cast<int64_t>(vocabulary.size());
  for (const std::string& token : specials) {
    const std::optional<int64_t> known = find_token(vocabulary, token);
    const bool listed = std::any_of(by_id.begin(), by_id.end(), [&](const auto& entry) {
      return entry.second["content"] == token;
    });
    if (listed) {
      continue;
    }
    if (!known && !by_id.empty()) {
      next = std::max(next, by_id.rbegin()->first + 1);
    }
    const int64_t id = known.value_or(next);
    by_id[id] = added_token(id, token, true);
  }
  json list = json::array();
  for (auto& [id, token] : by_id) {
    list.push_back(std::move(token));
  }
  return list;
}

/// Returns the description of a GPT-2 tokenizer in the two-file format.
TokenizerDescription two_file_tokenizer(const TokenizerFiles& files) {
  ModelTables tables{read_vocabulary(files), merges_of(files)};
  bool prefix_space = false;
  std::string kind = "GPT2Tokenizer";
  if (const std::optional<json> parsed = read_optional(files, "tokenizer_config.json")) {
    const Field config(*parsed, place_of(files, "tokenizer_config.json") + ":");
    prefix_space = config.boolean_or("add_prefix_space", false);
    kind = config.string_or("tokenizer_class", kind);
    if (kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast") {
      throw config.error(
          fmt::format(
              "has the tokenizer_class {}, which needs more than vocab.json and merges.txt", kind),
          "save the tokenizer with transformers' save_pretrained, which writes a tokenizer.json");
    }
  }
  json added = added_tokens(files, tables.vocabulary);
  auto description = std::make_shared<const json>(json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"},
        {"add_prefix_space", prefix_space},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"post_processor",
       {{"type", "ByteLevel"},
        {"add_prefix_space", true},
        {"trim_offsets", false},
        {"use_regex", true}}},
      {"decoder",
       {{"type", "ByteLevel"},
        {"add_prefix_space", true},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false}}}});
  return {std::move(description), std::move(tables)};
}

/// Converts a token in tokenizer_config.json (a string, or an AddedToken with flags) to an entry of
/// added_tokens.
json to_added_token(const Field& given, bool is_special) {
  if (given.is_string()) {
    return added_token(-1, given.string(), is_special);
  }
  json token = added_token(
      -1, given.string_or("content", ""), given.boolean_or("special", is_special) || is_special);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
    token[flag] = given.boolean_or(flag, token[flag].get<bool>());
  }
  return token;
}

/// Returns the tokens in other files that transformers adds to a tokenizer.json, in its order:
/// added_tokens_decoder (or added_tokens.json), named special tokens, additional special tokens.
std::vector<json> tokens_beside(const TokenizerFiles& files) {
  static constexpr const char* kNames[] = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  const auto read = [&](const std::string& name) {
    return read_optional(files, name).value_or(json::object());
  };
  const auto as_field = [&](const json& value, const std::string& name) {
    return Field(value, place_of(files, name) + ":");
  };
  std::map<std::string, json> contents;  // alive while fields refer to them
  std::vector<Field> sources;
  for (const std::string& name : special_token_files(files)) {
    sources.push_back(as_field(contents[name] = read(name), name));
  }
  const Field& config = sources.back();  // tokenizer_config.json
  const auto is_token = [](const Field& value) { return value.is_string() || value.is_object(); };
  std::vector<json> named, further;
  for (const char* name : kNames) {
    for (const Field& file : sources) {
      if (const std::optional<Field> token = file.find(name); token && is_token(*token)) {
        named.push_back(to_added_token(*token, true));
        break;
      }
    }
  }
  const auto add_further = [&](const Field& token) {
    if (is_token(token)) {
      further.push_back(to_added_token(token, true));
    }
  };
  for (const Field& file : sources) {
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
      const std::optional<Field> tokens = file.find(name);
      if (tokens && tokens->is_object()) {
        tokens->each([&](const std::string&, const Field& token) { add_further(token); });
      } else if (tokens && tokens->json().is_array()) {
        std::ranges::for_each(tokens->list(), add_further);
      }
    }
  }
  const auto is_named = [&](const std::string& content) {
    const auto has = [&](const json& token) { return token["content"] == content; };
    return std::ranges::any_of(named, has) || std::ranges::any_of(further, has);
  };
  std::map<int64_t, json> by_id;
  if (const std::optional<Field> decoder = config.find("added_tokens_decoder")) {
    decoder->each([&](const std::string& id, const Field& token) {
      by_id[std::atoll(id.c_str())] = to_added_token(token, is_named(token.at("content").string()));
    });
  } else if (const std::optional<json> added = read_optional(files, "added_tokens.json")) {
    as_field(*added, "added_tokens.json").each([&](const std::string& token, const Field& id) {
      by_id[id.integer()] = added_token(-1, token, is_named(token));
    });
  }
  std::vector<json> tokens;
  for (auto& [id, token] : by_id) {
    token["id"] = id;
    tokens.push_back(std::move(token));
  }
  tokens.insert(tokens.end(), named.begin(), named.end());
  tokens.insert(tokens.end(), further.begin(), further.end());
  return tokens;
}

void report_conflicts(const TokenizerFiles& files, const json& tokenizer) {
  const json config = read_optional(files, kConfigName).value_or(json());
  if (const auto conflicts = conflicts_of(config, tokenizer); !conflicts.empty()) {
    warn_on_first_rank(fmt::format(
        "{}: {}; tokenizer.json is used, transformers 5 may encode otherwise",
        place_of(files, kConfigName),
        fmt::join(conflicts, "; ")));
  }
}

/// Returns the tokens and ids of the model's vocabulary.
TokenIds vocabulary_of(const TokenizerDescription& description, const Field& whole) {
  if (description.tables) {
    return description.tables->vocabulary;
  }
  TokenIds ids;
  const std::optional<Field> model = whole.find("model");
  const std::optional<Field> found = model ? model->find("vocab") : std::nullopt;
  const json& vocabulary = found ? found->json() : json::object();
  if (vocabulary.is_array()) {  // Unigram: pairs of token and score, indexed by id
    for (const json& entry : vocabulary) {
      if (entry.is_array() && !entry.empty() && entry[0].is_string()) {
        ids.emplace_back(entry[0].get<std::string>(), static_cast<int64_t>(ids.size()));
      }
    }
  } else {
    for (const auto& [token, id] : vocabulary.items()) {
      if (id.is_number_integer()) {
        ids.emplace_back(token, id.get<int64_t>());
      }
    }
  }
  return ids;
}

/// Adds tokens that are missing in tokenizer.json, with the ids that transformers' AutoTokenizer
/// assigns: the id in the vocabulary, otherwise the next free id.
TokenizerDescription with_tokens_beside(
    TokenizerDescription description, const TokenizerFiles& files) {
  report_conflicts(files, *description.json);
  const Field whole(*description.json, place_of(files, "tokenizer.json") + ":");
  std::set<std::string> known{""};
  json added = json::array();
  int64_t highest = -1;
  if (const std::optional<Field> tokens = whole.find("added_tokens")) {
    for (const Field& token : tokens->list()) {
      known.insert(token.at("content").string());
      const int64_t id = token.integer_or("id", -1);
      if (id > std::numeric_limits<int32_t>::max()) {
        throw token.at("id").error("is not an id: ids are less than 2^31");
      }
      highest = std::max(highest, id);
      added.push_back(token.json());
    }
  }
  std::optional<TokenIds> vocabulary;
  const size_t before = added.size();
  for (json token : tokens_beside(files)) {
    if (!known.insert(token["content"].get<std::string>()).second) {
      continue;
    }
    if (!vocabulary) {
      vocabulary = vocabulary_of(description, whole);
    }
    const auto size = static_cast<int64_t>(vocabulary->size());
    const auto declared = token["id"].get<int64_t>();
    token["id"] = find_token(*vocabulary, token["content"].get<std::string>())
                      .value_or(highest >= size ? highest + 1 : size);
    highest = std::max(highest, token["id"].get<int64_t>());
    if (declared >= 0 && declared != token["id"]) {
      warn_on_first_rank(fmt::format(
          "{}: the added token {} has the id {} in the tokenizer, not {} (added_tokens_decoder, "
          "added_tokens.json)",
          files.place,
          token["content"].dump(),
          token["id"].get<int64_t>(),
          declared));
    }
    added.push_back(std::move(token));
  }
  if (added.size() == before) {
    return description;
  }
  json extended = *description.json;
  extended["added_tokens"] = std::move(added);
  description.json = std::make_shared<const json>(std::move(extended));
  return description;
}

}  // namespace

bool is_used_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFileNames, name) != kFileNames.end();
}

bool is_tokenizer_file(std::string_view name) {
  return is_used_tokenizer_file(name) || std::ranges::find(kKeptNames, name) != kKeptNames.end();
}

TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder_or_file) {
  const bool is_folder = std::filesystem::is_directory(folder_or_file);
  const std::filesystem::path folder = is_folder ? folder_or_file : folder_or_file.parent_path();
  TokenizerFiles files{folder.string(), {}};
  for (const std::span<const char* const> names :
       {std::span<const char* const>(kFileNames), std::span<const char* const>(kKeptNames)}) {
    for (const char* name : names) {
      if (std::filesystem::is_regular_file(folder / name)) {
        files.contents[name] = read_file(folder / name, ErrorKind::kData, kLongestJsonTable);
      }
    }
  }
  if (!is_folder) {
    files.contents["tokenizer.json"] =
        read_file(folder_or_file, ErrorKind::kData, kLongestJsonTable);
  }
  const bool two_files =
      files.contents.contains("vocab.json") && files.contents.contains("merges.txt");
  if (!files.contents.contains("tokenizer.json") && !two_files) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} contains no tokenizer: neither tokenizer.json nor vocab.json and merges.txt",
            folder_or_file.string()),
        "set tokenizer.path to the folder of a tokenizer, train one with `lockstep tokenizer "
        "train`, or save one with transformers' save_pretrained");
  }
  return files;
}

std::vector<std::string> special_token_files(const TokenizerFiles& files) {
  const std::optional<json> config = read_optional(files, kConfigName);
  const bool is_only = config && config->is_object() && config->contains("added_tokens_decoder");
  return is_only ? std::vector<std::string>{kConfigName}
                 : std::vector<std::string>{"special_tokens_map.json", kConfigName};
}

SpecialNames read_special_names(const TokenizerFiles& files) {
  SpecialNames names;
  for (const std::string& name : special_token_files(files)) {
    read_names(files, name, names);
  }
  return names;
}

TokenizerDescription read_description(const TokenizerFiles& files) {
  const auto found = files.contents.find("tokenizer.json");
  if (found == files.contents.end()) {
    return two_file_tokenizer(files);
  }
  const std::string place = place_of(files, "tokenizer.json");
  if (std::optional<SplitTokenizer> split = split_tokenizer(found->second)) {
    return with_tokens_beside(
        {std::make_shared<const json>(parse_json(split->rest, place)), std::move(split->tables)},
        files);
  }
  return with_tokens_beside(
      {std::make_shared<const json>(parse_json(found->second, place)), std::nullopt}, files);
}

std::string two_files_as_json(const TokenizerFiles& files) {
  const TokenizerDescription description = two_file_tokenizer(files);
  json whole = *description.json;
  json vocabulary = json::object();
  for (const auto& [token, id] : description.tables->vocabulary) {
    vocabulary[token] = id;
  }
  json& model = whole["model"];
  model["vocab"] = std::move(vocabulary);
  model["merges"] = description.tables->merges;  // list of pairs
  return whole.dump(1) + "\n";
}

}  // namespace lockstep::text
