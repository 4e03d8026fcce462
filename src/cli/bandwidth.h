// How fast the ranks of a job sum, and how far their clocks stand apart.
#pragma once

#include <string>

#include "launch/workers/worker_environment.h"

namespace lockstep::cli {

struct Measured {
  double all_reduce = 0;  // bytes/s that each rank sends, by the ring's count
  double expected =
      0;  // bytes/s of one plain TCP stream over loopback, shared among this machine's ranks
  double clocks = 0;  // the largest difference to rank 0's clock, seconds
};

/// Every rank must call; meets the others as `identity` says, over Gloo. Blocks for a few seconds.
/// Error (peer lost) where a rank does not come within a minute.
Measured measure_ranks(const launch::WorkerIdentity& identity);

/// One line of text and back, for the process that started the ranks.
std::string to_text(const Measured& measured);
Measured measured_from_text(const std::string& text);

}  // namespace lockstep::cli
