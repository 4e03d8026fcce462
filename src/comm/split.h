// Groups of a subset of a communicator's ranks.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Creates a group of some ranks of `parent`, including this one, in the given order; a group of
/// one has no backend. Every listed rank must call with equal arguments; blocks until all have.
/// Groups of one name that are split at the same time must be disjoint. `options` are those with
/// which the parent was joined. Throws Error (peer lost) if a rank does not arrive.
Communicator split(
    Communicator& parent,
    const std::vector<int>& ranks,
    const std::string& name,
    const GroupOptions& options);

}  // namespace lockstep::comm
