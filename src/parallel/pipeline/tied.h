// Tied embedding across a pipeline: the first stage (embedding) and the last stage (head) each hold
// a copy of the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Adds the two stages' gradients of the tied weight on both, so that equal updates keep the copies
/// bit-identical. `first` and `last` are the gradients, or equal shards of them, if this rank holds
/// that stage; undefined otherwise. The ranks of both stages must call.
void sum_tied_gradients(
    Tensor first, Tensor last, int first_rank, int last_rank, comm::Communicator& group);

}  // namespace lockstep::parallel
