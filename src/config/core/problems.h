// Everything that is wrong with a configuration, so that the user sees it at once.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/core/origin.h"

namespace lockstep::config {

class Problems {
 public:
  /// "training.seed (conf.yaml:3): MESSAGE; REMEDY". An empty key leaves the front out.
  void add(
      const std::string& key,
      const Origin& origin,
      const std::string& message,
      const std::string& remedy = "");
  /// An Error that a reader threw.
  void add(const Error& error);

  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }
  /// Throws one Error(kConfig) with all of them (at most 20 are shown), if there are any.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace lockstep::config
