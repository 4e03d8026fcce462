// A process of a job started by a launcher, from its variables to a group of ranks.
#pragma once

#include <chrono>

#include "train/machine/rank_context.h"

namespace lockstep {

struct JoinOptions {
  enum class Device { kGpuIfAny, kCpu } device = Device::kGpuIfAny;
  /// How long a collective waits for the other ranks.
  std::chrono::seconds timeout = std::chrono::minutes(30);
  /// Ranks of one machine, on CPUs, exchange tensors through memory that they share.
  bool shared_memory = true;
};

/// Joins the job that `lockstep launch`, torchrun, accelerate's or deepspeed's launcher started
/// this process for: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT say who it is. Where
/// none of them did, it is a job of one rank. From then on lines of the log begin with the rank,
/// and the memory of tensors is kept between steps (ops/host_memory.h). Every rank of the job must
/// call, once, before it makes tensors; blocks until all have come. Error (config): the variables
/// are not whole; (environment): no GPU for this local rank, or a rank that cannot be reached.
train::RankContext join(const JoinOptions& options = {});

}  // namespace lockstep
