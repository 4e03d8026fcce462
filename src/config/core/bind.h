// Conversion of a configuration tree to typed structs.
#pragma once

#include "config/core/config.h"
#include "config/core/origin.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Fills `config` from `tree`, whose interpolations must be resolved, and `origins` with the origin
/// of each value. Values whose origin is the default are skipped. Reports values of the wrong type,
/// values that are not among the choices, and unknown keys (with the nearest key).
///
/// null means the default or, for optional keys, no value. A scalar is accepted as a list of one
/// element, and a float without a fraction as an integer. Top-level names that are not sections are
/// ignored.
void bind_config(const Value& tree, Config& config, Origins& origins, Problems& problems);

}  // namespace lockstep::config
