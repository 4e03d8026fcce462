// The embedding that the first stage looks tokens up in and the last stage's head multiplies with:
// one parameter, of which both stages hold a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Adds the two stages' gradients of the tied weight, on both, so that equal updates keep the
/// copies equal to the bit. `first` and `last` are the gradients, or equal shards of them, where
/// this rank holds that stage; undefined elsewhere. The ranks of both stages must call.
void sum_tied_gradients(
    Tensor first, Tensor last, int first_rank, int last_rank, comm::Communicator& group);

}  // namespace lockstep::parallel
