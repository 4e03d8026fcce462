// The configuration as text: the file of a run, the listing with origins, the help, the JSON
// schema.
#pragma once

#include <string>

#include "config/resolve.h"

namespace lockstep::config {

/// YAML of every field, which reads back to the very same configuration: the run's config.yaml.
/// Values whose origin is secret are written as ***.
std::string to_yaml(const Config& config, const Origins& origins = {});
/// The same, each line followed by where its value came from (--print-config).
std::string print_config(const Resolution& resolution);
/// The text of --help: usage, the command's flags, and every key with its type, default and
/// meaning.
std::string help(const ResolveOptions& options);
/// The command's flags alone.
std::string flags_help(const ResolveOptions& options);
/// The JSON schema (draft 2020-12) of a configuration file, for editors.
std::string json_schema();

}  // namespace lockstep::config
