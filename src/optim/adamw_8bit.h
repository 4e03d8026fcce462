// AdamW with 8-bit moments (Dettmers et al., 2022). Uses the formulas of ops/adamw.h. A step
// dequantizes the moments, updates them in float32, applies them, and quantizes them again in
// blocks of 256.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Parameters with fewer than 4096 elements have float32 moments (exp_avg, exp_avg_sq). The state
/// of other parameters is exp_avg and exp_avg_sq as uint8 codes, and exp_avg.absmax and
/// exp_avg_sq.absmax with one float32 per block. Blocks are defined on the whole parameter, even if
/// this rank has only a shard. All ranks that share the parameter store all scales, and a step
/// first reduces the largest magnitudes of all blocks over these ranks, which requires computing
/// the moments twice. On GPUs, uses a single kernel if liblockstep_cuda.so provides it and the
/// parameter is not sharded, and ATen operations (quantized_blocks.h) otherwise.
std::unique_ptr<Optimizer> make_adamw_8bit(const OptimizerOptions& options);

}  // namespace lockstep::optim
