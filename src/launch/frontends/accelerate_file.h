// Reads accelerate's configuration file.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/options.h"

namespace lockstep::launch {

/// Settings of the file that are not options.
struct AccelerateFile {
  std::string distributed_type;               // empty: no file, or the key is missing
  std::vector<std::string> deepspeed_fields;  // keys of deepspeed_config
};

/// Reads YAML or JSON and sets the defaults of `options` (of accelerate_options()). Unknown keys
/// and unsupported values are added to the problems of `options`. Throws Error (config) if the file
/// cannot be read.
AccelerateFile read_accelerate_file(const std::string& path, Options& options);

/// Returns true for boolean words of YAML 1.1 and Python, such as "no" and "yes".
bool is_truth_word(const std::string& text);

}  // namespace lockstep::launch
