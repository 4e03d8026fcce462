// OmegaConf interpolations: ${a.b}, ${.sibling}, ${oc.env:VAR,default}, nested interpolations, and
// \${ for a literal ${.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "config/core/value.h"

namespace lockstep::config {

using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// Values for ${hydra:...} and ${now:...}.
struct RunFacts {
  std::map<std::string, std::string> hydra;  // "runtime.cwd", "job.name", "runtime.choices.model"
  int64_t now = 0;                           // Unix time in seconds
};

/// Resolves the interpolations of a tree. The tree is not modified and must outlive this object.
///
/// Supported resolvers: oc.env, oc.decode, oc.select, oc.dict.keys, oc.dict.values, oc.deprecated,
/// hydra, now. Limits: nesting depth 64, 1 MiB of text and 20,000 values in total.
class Interpolator {
 public:
  Interpolator(const Value& root, Environment environment, RunFacts facts);

  /// Returns `value`, located at `path` of the tree, with all interpolations resolved. Throws Error
  /// (config) with the interpolation and its origin for an unknown key, an unset variable, a cycle
  /// or an unknown resolver.
  Value resolve(const Value& value, const Path& path);

  /// Returns the first path component of every interpolation resolved so far. These top-level names
  /// are variables.
  const std::set<std::string>& referenced() const { return referenced_; }

 private:
  struct Call;
  Value walk(const Value& value, const Path& path);
  Value scalar(const Value& value, const Path& path);
  Value evaluate(const std::string& inner, const Value& value, const Path& path);
  Value node(const std::string& reference, const Value& value, const Path& path);
  Value follow(const Path& target, const std::string& reference, const Value& value);
  Value call(const Call& call, const Value& value, const Path& path);
  Value argument(const std::string& text, const Value& value, const Path& path);
  Value variable(const Call& call, const Value& value, const Path& path);
  Value fact(const std::string& name, const Value& value);
  void spend(size_t bytes, const Value& value);

  const Value& root_;
  Environment environment_;
  RunFacts facts_;
  std::set<std::string> referenced_;
  std::vector<Path> open_;  // paths being resolved, to detect cycles
  int depth_ = 0;
  size_t bytes_ = 0, nodes_ = 0;
};

}  // namespace lockstep::config
