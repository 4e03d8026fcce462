// Expansion of Hydra's defaults list to an ordered list of files, each with its package.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/hydra/override.h"
#include "config/hydra/repository.h"

namespace lockstep::config {

/// File to merge.
struct DefaultsResult {
  std::string path;  // path in the repository
  std::string package;
};

/// Expands the defaults list of the primary file. Applies overrides that select options.
class DefaultsList {
 public:
  /// Consumes the overrides whose key is a group. rest() returns the others.
  DefaultsList(Repository& repository, std::vector<Override> overrides);

  /// Returns the files in merge order. Throws the same errors as compose().
  std::vector<DefaultsResult> expand();

  std::vector<Override> rest() { return std::move(rest_); }
  const std::map<std::string, std::string>& choices() const { return known_choices_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Node;
  struct Choice {
    std::vector<std::string> options;
    bool is_list = false;
    bool external = false;
    bool used = false;
    Origin origin;
  };

  void take(Override override);
  std::vector<DefaultsResult> visit(Node& node, bool in_interpolation);
  std::vector<DefaultsResult> visit_children(
      const Node& parent, const ConfigFile& file, bool in_interpolation);
  std::vector<DefaultsResult> visit_item(Node child, const Node& parent, bool in_interpolation);
  std::vector<DefaultItem> items_of(const Node& parent, const ConfigFile& file);
  void register_overrides(
      const Node& parent, const std::vector<DefaultItem>& items, bool in_interpolation);
  void note_choice(const Node& node);
  bool is_deleted(const Node& node);
  std::string fill_in(const std::string& option, const Node& node) const;
  const ConfigFile& load(const Node& node);
  void check_used() const;

  Repository& repository_;
  std::vector<Override> rest_;
  std::map<std::string, Choice> override_choices_;  // by override key: "group" or "group@package"
  std::vector<DefaultItem> appended_;
  struct Deletion {
    std::string option;  // empty: any
    bool used = false;
    std::string text;
  };
  std::map<std::string, Deletion> deletions_;
  std::map<std::string, std::string> known_choices_;
  std::map<std::string, std::set<std::string>> known_keys_;  // override keys of each group
  std::set<std::string> final_keys_;
  std::vector<std::string> open_;  // files being expanded, to detect cycles
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::config
