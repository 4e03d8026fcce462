// accelerate's configuration file as options: the values that the command line did not give.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/options.h"

namespace lockstep::launch {

/// What the file says beside options.
struct AccelerateFile {
  std::string distributed_type;               // empty: no file, or it does not say
  std::vector<std::string> deepspeed_fields;  // the keys of deepspeed_config
};

/// Reads YAML or JSON and gives `options` (of accelerate_options()) its values as defaults. Unknown
/// keys and values that are not supported become problems of `options`; Error (config) where the
/// file cannot be read.
AccelerateFile read_accelerate_file(const std::string& path, Options& options);

/// "no" and "yes" and their like, as YAML 1.1 and Python write them.
bool is_truth_word(const std::string& text);

}  // namespace lockstep::launch
