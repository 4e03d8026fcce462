// Fast reader for vocabulary and merges of a tokenizer. Builds no document tree, so a
// tokenizer.json of several megabytes is loaded in a few milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

using TokenIds = std::vector<std::pair<std::string, int64_t>>;
using MergePairs = std::vector<std::pair<std::string, std::string>>;

/// Vocabulary and merges of a BPE model.
struct ModelTables {
  TokenIds vocabulary;
  MergePairs merges;
};

/// A tokenizer.json split into its tables and the remaining JSON, in which the tables are null.
struct SplitTokenizer {
  std::string rest;
  ModelTables tables;
};

/// Splits a tokenizer.json. Returns nullopt if the file is damaged or has an unusual layout. The
/// caller then parses the whole file, which reports errors.
std::optional<SplitTokenizer> split_tokenizer(std::string_view json);
/// Parses {"token": id, ...}. Returns nullopt if the JSON has another form.
std::optional<TokenIds> read_token_ids(std::string_view json);

}  // namespace lockstep::text
