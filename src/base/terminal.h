// Capabilities of the terminal of a file descriptor.
#pragma once

namespace lockstep {

/// Returns true if the descriptor is a terminal that supports control sequences: TERM is not dumb.
bool has_control_sequences(int descriptor);
/// Returns true if colours can be written: has_control_sequences(), and NO_COLOR is not set or is
/// empty (https://no-color.org).
bool has_colours(int descriptor);

}  // namespace lockstep
