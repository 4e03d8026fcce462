// The large parts of a model's description, vocabulary and merges, read without a document tree: a
// tokenizer.json of some megabytes then opens in some milliseconds.
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

/// The tables of a BPE model.
struct ModelTables {
  TokenIds vocabulary;
  MergePairs merges;
};

/// A tokenizer.json in two: the tables, and the rest of its text with null in their place.
struct SplitTokenizer {
  std::string rest;
  ModelTables tables;
};

/// Nothing where the text is not of the usual shape, damaged ones included: read it whole then,
/// which tells what is wrong.
std::optional<SplitTokenizer> split_tokenizer(std::string_view json);
/// {"token": id, ...}; nothing where it is not.
std::optional<TokenIds> read_token_ids(std::string_view json);

}  // namespace lockstep::text
