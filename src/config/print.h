// Text output of the configuration: config.yaml, listing with origins, --help, JSON schema.
#pragma once

#include <string>

#include "config/resolve.h"

namespace lockstep::config {

/// Returns the config.yaml of a run, with every field. Reading it yields the same configuration.
/// Secret values are written as ***.
std::string to_yaml(const Config& config, const Origins& origins = {});
/// Returns the same YAML with the origin of each value on its line (--print-config).
std::string print_config(const Resolution& resolution);
/// Returns the text of --help: usage, flags and keys with type, default and description. `topic` is
/// empty for the most used keys, "all", a section or a key. Throws Error (config) for another
/// topic.
std::string help(const ResolveOptions& options, const std::string& topic = "");
/// Returns the JSON schema (draft 2020-12) of configuration files, for use in editors.
std::string json_schema();

}  // namespace lockstep::config
