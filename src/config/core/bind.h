// From a tree to typed structs.
#pragma once

#include "config/core/config.h"
#include "config/core/origin.h"
#include "config/core/problems.h"
#include "config/core/value.h"

namespace lockstep::config {

/// Fills `config` from `tree`, whose interpolations are resolved, and `origins` with where each
/// value came from; values whose origin is the default are left as they are. Everything that does
/// not fit is a problem: a text that is no number, a word that is none of the choices, a key that
/// there is not (with the nearest one).
///
/// null means the default, or nothing where the key may be null. A single value is a list of one.
/// An integer may be written as a float without a fraction. Top-level names that are no sections
/// are left alone.
void bind_config(const Value& tree, Config& config, Origins& origins, Problems& problems);

}  // namespace lockstep::config
