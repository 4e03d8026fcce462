// Binding of a configuration tree to typed structs.
#pragma once

#include "config/core/config.h"
#include "config/core/origin.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Fills `config` from `tree`, whose interpolations are resolved, and `origins` with the origin of
/// each value. Values whose origin is the default are not changed. Problems: a value of the wrong
/// type, a value that is not one of the choices, an unknown key (with the nearest key).
///
/// null means the default, or no value if the key may be null. A single value is a list of one. An
/// integer may be written as a float without a fraction. Top-level names that are not sections are
/// ignored.
void bind_config(const Value& tree, Config& config, Origins& origins, Problems& problems);

}  // namespace lockstep::config
