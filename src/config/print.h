// Configuration as text: the config.yaml of a run, the listing with origins, the help, the JSON
// schema.
#pragma once

#include <string>

#include "config/resolve.h"

namespace lockstep::config {

/// Returns YAML with every field, the config.yaml of a run. Reading it gives the same
/// configuration. Secret values, and credentials in URLs, are written as ***.
std::string to_yaml(const Config& config, const Origins& origins = {});
/// The same, with the origin of the value on each line (--print-config).
std::string print_config(const Resolution& resolution);
/// Returns the text of --help: usage, the command's flags, and every key with type, default and
/// description.
std::string help(const ResolveOptions& options);
/// Returns only the help of the command's flags.
std::string flags_help(const ResolveOptions& options);
/// Returns the JSON schema (draft 2020-12) of a configuration file, for editors.
std::string json_schema();

}  // namespace lockstep::config
