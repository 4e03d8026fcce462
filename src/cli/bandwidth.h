// Measures the all-reduce bandwidth of a job and the clock differences between its ranks.
#pragma once

#include <string>

#include "launch/workers/worker_environment.h"

namespace lockstep::cli {

struct Measured {
  double all_reduce = 0;  // bytes/s sent by each rank of a ring all-reduce
  double expected = 0;    // bytes/s of a loopback TCP stream, divided by the number of local ranks
  double clocks = 0;      // largest difference from rank 0's clock in seconds
};

/// Connects the ranks with the rendezvous of `identity` and measures them over Gloo. Blocks for a
/// few seconds. Throws Error (peer lost) if a rank does not connect within a minute. Must be called
/// on every rank.
Measured measure_ranks(const launch::WorkerIdentity& identity);

/// Convert the results to and from a line of text, for the process that started the ranks.
std::string to_text(const Measured& measured);
Measured measured_from_text(const std::string& text);

}  // namespace lockstep::cli
