// Tied embedding in a pipeline: the first stage (embedding) and the last stage (head) each hold a
// copy of the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Sums the gradients of the tied weight over both stages, on both, so that equal updates keep the
/// copies bit-identical. `first` and `last` are the gradients on the two stages, or equal shards of
/// them; undefined if this rank does not hold that stage. Must be called on the ranks of both
/// stages.
void sum_tied_gradients(
    Tensor first, Tensor last, int first_rank, int last_rank, comm::Communicator& group);

}  // namespace lockstep::parallel
