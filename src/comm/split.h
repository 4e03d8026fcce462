// Groups of some of a communicator's ranks.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// A new group of some ranks of `parent`, this one among them, in that order; a group of one is
/// alone. Every rank named must call with equal arguments; blocks until the group has met. Groups
/// of one name that are split off at the same time must have no rank in common. `options` are those
/// that the parent was joined with. Throws Error (peer lost) where a rank does not come.
Communicator split(
    Communicator& parent,
    const std::vector<int>& ranks,
    const std::string& name,
    const GroupOptions& options);

}  // namespace lockstep::comm
