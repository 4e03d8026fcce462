// Files that the commands of the documentation use, for `lockstep sample --examples`.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::start {

struct ExampleFile {
  std::string_view name;  // relative path
  std::string_view content;
};

/// Returns the files of examples/files. Defined in a file that CMake generates.
std::span<const ExampleFile> example_files();

/// Writes these files, a small corpus (corpus.txt) and the folder of a small GPT-2 with its
/// tokenizer (gpt2-folder, without weights). Returns the paths written. Throws Error (config) if
/// one of them exists.
std::vector<std::filesystem::path> write_examples(const std::filesystem::path& folder);

}  // namespace lockstep::start
