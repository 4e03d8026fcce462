// Accounts for the files of a model folder.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// Treatment of a file in a model folder.
enum class FileUse {
  kUsed,               // it is read
  kKept,               // not read, but copied to model folders that are saved
  kKeptWithTokenizer,  // not read, but copied with the tokenizer
  kHarmless,           // not read, and has no effect on results
};

struct KnownFile {
  const char* pattern;  // of names, as in a shell
  FileUse use;
  const char* reason;
};

/// Returns the known names. The first pattern that matches a name applies.
std::span<const KnownFile> known_files();

/// Returns the sorted names of files and folders that are not known and whose kind (JSON, weights,
/// templates, tokenizers) may have an effect in other programs.
std::vector<std::string> unknown_files(const std::filesystem::path& folder);

/// Returns the contents of the files with FileUse::kKept by name.
std::map<std::string, std::string> kept_files(const std::filesystem::path& folder);

}  // namespace lockstep::model
