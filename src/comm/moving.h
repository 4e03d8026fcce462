// Splits a rank's communication time into data transfer and waiting for peers.
#pragma once

#include <functional>

namespace lockstep::comm {

/// Returns the total seconds that this process spent on transferring data: copying and reducing
/// tensors in shared memory, or blocked on a link although the receiver had buffer space (Gloo
/// sockets, sampled several times per second). NCCL transfers are not measured.
double seconds_moving();
void add_seconds_moving(double seconds);

/// Runs `join` and samples the sockets that it opens on a background thread.
void watch_sockets_of(const std::function<void()>& join);

}  // namespace lockstep::comm
