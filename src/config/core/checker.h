// Helper that checks configuration values and reports violations with key, origin and value.
#pragma once

#include <cmath>
#include <string>

#include "config/core/problems.h"
#include "config/core/schema.h"

namespace lockstep::config {

class Checker {
 public:
  Checker(const Config& config, const Origins& origins, Problems& problems)
      : values_(to_value(config)),
        origins_(origins),
        problems_(problems) {}

  bool given(const std::string& key) const { return origins_.count(key) != 0; }
  const Value& value(const std::string& key) const { return *values_.find(split_path(key)); }
  Origin origin(const std::string& key) const { return given(key) ? origins_.at(key) : Origin{}; }
  void fail(const std::string& key, const std::string& message, const std::string& remedy = "") {
    problems_.add(key, origin(key), message, remedy);
  }
  /// Reports "must be `what`, not VALUE" unless `holds`; `what` is, for example, "at least 1".
  void require(bool holds, const std::string& key, const std::string& what) {
    if (!holds) {
      const std::string text = to_text(value(key));
      const bool is_infinite = text == ".inf" || text == ".nan" || text == "-.inf";
      fail(key, "must be " + what + (is_infinite ? ", and finite" : "") + ", not " + text);
    }
  }

 private:
  Value values_;
  const Origins& origins_;
  Problems& problems_;
};

/// Checks the section training. Called by validate() (validate.h).
void validate_training(const Config& config, Checker& check, std::vector<std::string>& warnings);
/// Checks the section preference and the keys used with task.type=preference.
void validate_preference(const Config& config, Checker& check, std::vector<std::string>& warnings);
void validate_lora(const Config& config, Checker& check);
void validate_quantization(const Config& config, Checker& check);
void validate_float8(const Config& config, Checker& check);
/// Checks the section unlearning and the keys used with task.type=unlearning.
void validate_unlearning(const Config& config, Checker& check, std::vector<std::string>& warnings);

}  // namespace lockstep::config
