// accelerate's configuration file as defaults of command-line options.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/options.h"

namespace lockstep::launch {

/// Settings of the file that are not options.
struct AccelerateFile {
  std::string distributed_type;               // empty: no file, or the key is missing
  std::vector<std::string> deepspeed_fields;  // the keys of deepspeed_config
};

/// Reads YAML or JSON and sets the defaults of `options` (of accelerate_options()). Unknown keys
/// and unsupported values become problems of `options`; throws Error (config) if the file cannot be
/// read.
AccelerateFile read_accelerate_file(const std::string& path, Options& options);

/// True for the boolean words of YAML 1.1 and Python, such as "no" and "yes".
bool is_truth_word(const std::string& text);

}  // namespace lockstep::launch
