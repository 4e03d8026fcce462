// Measurement of a job's all-reduce bandwidth and clock differences.
#pragma once

#include <string>

#include "launch/workers/worker_environment.h"

namespace lockstep::cli {

struct Measured {
  double all_reduce = 0;  // bytes/s sent by each rank of a ring all-reduce
  double expected =
      0;  // bytes/s of one plain TCP stream over loopback, shared among this machine's ranks
  double clocks = 0;  // largest difference from rank 0's clock, seconds
};

/// Measures the ranks over Gloo with the rendezvous of `identity`. Every rank must call. Blocks for
/// a few seconds. Throws Error (peer lost) if a rank does not arrive within a minute.
Measured measure_ranks(const launch::WorkerIdentity& identity);

/// Serialization to a line of text for the process that started the ranks, and back.
std::string to_text(const Measured& measured);
Measured measured_from_text(const std::string& text);

}  // namespace lockstep::cli
