// Harness that resolves a command line in a temporary folder, without the environment of the
// process.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "config/resolve.h"
#include "temporary_folder.h"

namespace lockstep::config {

/// Temporary folder with files. "@" at the start of an argument's value is the folder: "-c",
/// "@/a.yaml".
class Harness {
 public:
  std::map<std::string, std::string> environment;
  ResolveOptions options;

  Harness() {
    options.command = "train";
    options.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
  }

  Resolution run(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (const size_t at = argument.find("@/"); at != std::string::npos) {
        argument.replace(at, 1, folder_.path().string());
      }
    }
    return resolve(arguments, options);
  }

  /// Returns the text of the Error; empty if none is thrown. The folder's path is replaced by @.
  std::string error(const std::vector<std::string>& arguments) const {
    try {
      run(arguments);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      std::string text = error.what();
      const std::string folder = folder_.path().string();
      for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
        text.replace(at, folder.size(), 1, '@');
      }
      return text;
    }
  }

  /// Returns the origin of a key's value, with the folder's path replaced by @.
  std::string origin(const Resolution& resolution, const std::string& key) const {
    const auto found = resolution.origins.find(key);
    std::string text = found == resolution.origins.end() ? "default" : describe(found->second);
    const std::string folder = folder_.path().string();
    if (const size_t at = text.find(folder); at != std::string::npos) {
      text.replace(at, folder.size(), 1, '@');
    }
    return text;
  }

 private:
  TemporaryFolder folder_;
};

/// Returns true if one of the texts contains `part`.
inline bool any_holds(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts) {
    if (text.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::config
