// OmegaConf's interpolations: ${a.b}, ${.sibling}, ${oc.env:VAR,default}, one inside another, and
// \${ for the text itself.
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

/// What ${hydra:...} and ${now:...} tell.
struct RunFacts {
  std::map<std::string, std::string> hydra;  // "runtime.cwd", "job.name", "runtime.choices.model"
  int64_t now = 0;                           // seconds since 1970
};

/// Resolves values of one tree. The tree must outlive it and is not changed.
///
/// Resolvers: oc.env, oc.decode, oc.select, oc.dict.keys, oc.dict.values, oc.deprecated, hydra,
/// now. Bounds, against texts that grow: nesting of 64, 1 MiB of text and 20,000 values in all.
class Interpolator {
 public:
  Interpolator(const Value& root, Environment environment, RunFacts facts);

  /// The value, which stands at `path` of the tree, with everything in it resolved. Throws
  /// Error(kConfig) that names the interpolation and where it stands: a key or a variable that is
  /// not there, a loop, a resolver that is not known.
  Value resolve(const Value& value, const Path& path);

  /// The first names of all paths that were followed: these top-level keys are variables.
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
  std::vector<Path> open_;  // the paths that are being resolved
  int depth_ = 0;
  size_t bytes_ = 0, nodes_ = 0;
};

}  // namespace lockstep::config
