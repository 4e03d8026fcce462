// Splits communication time into transfer and waiting for peers.
#pragma once

#include <functional>

namespace lockstep::comm {

/// Returns the seconds that this process has spent transferring data: copying and adding peers'
/// tensors (shared memory), or with unsent bytes in a socket whose receiver had room (Gloo; sampled
/// a few times per second). NCCL is not measured.
double seconds_moving();
void add_seconds_moving(double seconds);

/// Runs `join` and from then on samples the sockets that it opened, on a separate thread.
void watch_sockets_of(const std::function<void()>& join);

}  // namespace lockstep::comm
