// What of communication's time is a rank's own: the rest of its waits is for others.
#pragma once

#include <functional>

namespace lockstep::comm {

/// Seconds so far that this process took to copy and add up what ranks of its machine offer (shared
/// memory), or in which bytes of its own stood before a link that did not take them, while their
/// receiver had room (sockets of Gloo, as a look at them some times a second finds them). Of NCCL
/// nothing is known.
double seconds_moving();
void add_seconds_moving(double seconds);

/// Runs `join`, and from then on looks after the sockets that it opened, in a thread of its own.
void watch_sockets_of(const std::function<void()>& join);

}  // namespace lockstep::comm
