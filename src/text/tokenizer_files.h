// Reading of tokenizer files, and conversion of GPT-2's two-file format to tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/models/model_tables.h"
#include "text/tokenizer.h"

namespace lockstep::text {

/// Special tokens in the configuration, as strings.
struct SpecialNames {
  std::optional<std::string> bos, eos, pad, unk, mask;
};

/// True for the names of files that affect ids or the text of chats.
bool is_used_tokenizer_file(std::string_view name);
/// True for the names of files that are saved with a tokenizer: those that are used, and those that
/// only other programs read.
bool is_tokenizer_file(std::string_view name);
/// Reads the available files. Throws Error that lists the expected files if there is no tokenizer.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder_or_file);
/// Returns the files whose special tokens are used, in the order of precedence: as in transformers,
/// special_tokens_map.json precedes tokenizer_config.json, unless the latter has an
/// added_tokens_decoder; then it is the only one.
std::vector<std::string> special_token_files(const TokenizerFiles& files);
/// Reads the names of the special tokens. The first file that has a name applies.
SpecialNames read_special_names(const TokenizerFiles& files);
/// Contents of a tokenizer.json. If `tables` is set, the model's tables were parsed separately and
/// are not in `json`.
struct TokenizerDescription {
  std::shared_ptr<const nlohmann::json> json;
  std::optional<ModelTables> tables;
};
/// Reads tokenizer.json if present, otherwise vocab.json and merges.txt in GPT-2's format.
TokenizerDescription read_description(const TokenizerFiles& files);
/// Returns the tokenizer.json equivalent to vocab.json and merges.txt.
std::string two_files_as_json(const TokenizerFiles& files);

}  // namespace lockstep::text
