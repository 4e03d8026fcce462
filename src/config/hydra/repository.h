// Cache of the files of a Hydra configuration tree. Each file is read once.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/core/value.h"

namespace lockstep::config {

/// One entry of a defaults list.
struct DefaultItem {
  enum class Kind { kSelf, kConfig, kGroup };
  Kind kind = Kind::kConfig;
  /// Path of a config or group as written. "/a/b" is relative to the root.
  std::string path = {};
  std::optional<std::string> package = {};  // text after '@'
  /// Options of a group; empty for null.
  std::vector<std::string> options = {};
  bool is_list = false;
  bool optional = false, override_ = false;
  Origin origin = {};
};

struct ConfigFile {
  Value content;  // without its defaults list
  std::vector<DefaultItem> defaults;
  std::optional<std::string> package_header;
  std::string place;  // path of the file, for messages
};

class Repository {
 public:
  /// The primary file is named kPrimary. Groups are searched in `folders` in order.
  Repository(const std::filesystem::path& primary, std::vector<std::filesystem::path> folders);

  static constexpr const char* kPrimary = "<primary>";

  /// Returns the file "group/option" (.yaml or .yml), or nullptr if it does not exist. Throws if it
  /// cannot be read.
  const ConfigFile* load(const std::string& path);
  bool group_exists(const std::string& group) const;
  /// Returns the options of a group, sorted.
  std::vector<std::string> options(const std::string& group) const;
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  std::filesystem::path primary_;
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, std::optional<ConfigFile>> files_;
};

/// Reads a file: content, package header and defaults list.
ConfigFile read_config(const std::filesystem::path& path);

}  // namespace lockstep::config
