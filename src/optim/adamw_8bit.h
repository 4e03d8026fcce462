// AdamW whose moments are kept in 8 bits (Dettmers et al., 2022): the formulas are those of
// ops/adamw.h; the moments are read from 8 bits, updated in float32, used, and rounded to 8 bits by
// blocks of 256.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace lockstep::optim {

/// Parameters of fewer than 4096 elements keep float32 moments (exp_avg, exp_avg_sq). Of the others
/// the state is exp_avg and exp_avg_sq as uint8 codes, and exp_avg.absmax and exp_avg_sq.absmax, a
/// float32 a block. Blocks are of a whole parameter, whatever part of it is here: of one that
/// tensor ranks share every rank keeps all scales, and a step begins with the largest magnitudes of
/// all blocks over the ranks, for which the moments are computed twice. On GPUs one kernel where
/// liblockstep_cuda.so has it and the parameter is whole, else ATen's operations
/// (quantized_blocks.h).
std::unique_ptr<Optimizer> make_adamw_8bit(const OptimizerOptions& options);

}  // namespace lockstep::optim
