// Hydra's defaults list: which files make a configuration, in which order, and under which package
// each.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/hydra/override.h"
#include "config/hydra/repository.h"

namespace lockstep::config {

/// A file whose content is merged in.
struct DefaultsResult {
  std::string path;  // of the repository
  std::string package;
};

/// Expands the defaults list of the primary file, with the overrides that choose options.
class DefaultsList {
 public:
  /// Takes the overrides whose key is a group; the others are in rest().
  DefaultsList(Repository& repository, std::vector<Override> overrides);

  /// The files in the order of merging. Throws as compose() does.
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
  std::vector<std::string> open_;  // the files that are being expanded
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::config
