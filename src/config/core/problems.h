// List of configuration problems, reported together.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/core/origin.h"

namespace lockstep::config {

class Problems {
 public:
  /// Adds "training.seed (conf.yaml:3): MESSAGE; REMEDY". If the key is empty, adds only "MESSAGE;
  /// REMEDY".
  void add(
      const std::string& key,
      const Origin& origin,
      const std::string& message,
      const std::string& remedy = "");
  /// Adds an Error thrown by a reader.
  void add(const Error& error);

  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }
  /// Throws one Error (config) that lists up to 20 problems. Does nothing if there are none.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace lockstep::config
