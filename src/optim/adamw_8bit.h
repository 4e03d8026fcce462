// AdamW with 8-bit moments (Dettmers et al., 2022). Uses the formulas of ops/adamw.h: the moments
// are dequantized, updated in float32, applied, and quantized again in blocks of 256.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Parameters with fewer than 4096 elements have float32 moments (exp_avg, exp_avg_sq). The state
/// of the others is exp_avg and exp_avg_sq as uint8 codes, and exp_avg.absmax and
/// exp_avg_sq.absmax, one float32 per block. Blocks belong to the whole parameter, also if this
/// rank has only a shard: every rank that shares the parameter stores all scales, and a step starts
/// by reducing the largest magnitudes of all blocks over the ranks, which requires computing the
/// moments twice. On GPUs a single kernel is used if liblockstep_cuda.so has it and the parameter
/// is not sharded; otherwise ATen operations (quantized_blocks.h).
std::unique_ptr<Optimizer> make_adamw_8bit(const OptimizerOptions& options);

}  // namespace lockstep::optim
