// Groups of a subset of the ranks of a communicator.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

/// Returns a new group of the given ranks of `parent`, in that order. This rank must be one of
/// them. A group of one rank has no backend. Must be called on every listed rank with equal
/// arguments; blocks until all of them have called. Groups with the same name that are created at
/// the same time must be disjoint. `options` must be those with which the parent was joined. Throws
/// Error (peer lost) if a rank does not arrive.
Communicator split(
    Communicator& parent,
    const std::vector<int>& ranks,
    const std::string& name,
    const GroupOptions& options);

}  // namespace lockstep::comm
