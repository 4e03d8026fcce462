// The files of a Hydra tree, read once each.
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
  /// Of a config: its path; of a group: its path. As written: "/a/b" is from the root.
  std::string path = {};
  std::optional<std::string> package = {};  // what follows '@'
  /// Of a group: the options. None: null was given.
  std::vector<std::string> options = {};
  bool is_list = false;
  bool optional = false, override_ = false;
  Origin origin = {};
};

struct ConfigFile {
  Value content;  // without its defaults list
  std::vector<DefaultItem> defaults;
  std::optional<std::string> package_header;
  std::string place;  // the file's path, for messages
};

class Repository {
 public:
  /// `primary` is found under the name kPrimary; groups in `folders`, the first that has a file
  /// wins.
  Repository(const std::filesystem::path& primary, std::vector<std::filesystem::path> folders);

  static constexpr const char* kPrimary = "<primary>";

  /// The file "group/option" (.yaml or .yml); nullptr where there is none. Throws where it cannot
  /// be read.
  const ConfigFile* load(const std::string& path);
  bool group_exists(const std::string& group) const;
  /// The options of a group, sorted.
  std::vector<std::string> options(const std::string& group) const;
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  std::filesystem::path primary_;
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, std::optional<ConfigFile>> files_;
};

/// Reads a file's text, header and defaults list.
ConfigFile read_config(const std::filesystem::path& path);

}  // namespace lockstep::config
