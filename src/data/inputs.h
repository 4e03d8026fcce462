// Which files the users' words name, and how each is read.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/options.h"

namespace lockstep::data {

struct InputFile {
  std::filesystem::path path;
  Format format = Format::kText;  // never kAuto
};

/// The files of a list of paths, globs (* ? [a-z] {a,b}) and folders: words in their order, a
/// glob's and a folder's (searched whole, hidden files left out) files by name, each file once. The
/// format is `format`, or with kAuto the one that the name tells: .txt .text .md .tokens .raw;
/// .json .jsonl .ndjson; .csv; .tsv; and each with .gz, .zst or .zstd after it. In a folder files
/// of other names are passed over. Errors of kind kData name what is missing or unknown, and what
/// stands near it; `key` says where the words come from ("data.train").
std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key);

}  // namespace lockstep::data
