// The files of a tokenizer on disk, and the two-file form of GPT-2 as a tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "text/models/model_tables.h"
#include "text/tokenizer.h"

namespace lockstep::text {

/// The special tokens that the configuration names, as strings.
struct SpecialNames {
  std::optional<std::string> bos, eos, pad, unk, mask;
};

/// Reads what is there. An Error tells what was looked for where no tokenizer is found.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder_or_file);
/// tokenizer_config.json first, special_tokens_map.json for what it lacks.
SpecialNames read_special_names(const TokenizerFiles& files);
/// A tokenizer.json: all of it, or all but the tables of its model, which were read apart.
struct TokenizerDescription {
  std::shared_ptr<const nlohmann::json> json;
  std::optional<ModelTables> tables;
};
/// Of tokenizer.json where there is one, else of vocab.json and merges.txt as GPT-2 has them.
TokenizerDescription read_description(const TokenizerFiles& files);
/// The tokenizer.json that says the same as vocab.json and merges.txt.
std::string two_files_as_json(const TokenizerFiles& files);

}  // namespace lockstep::text
