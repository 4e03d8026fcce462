// Model inputs of a training step.
#pragma once

#include <span>
#include <vector>

#include "data/loader.h"
#include "nn/forward_context.h"
#include "train/job.h"

namespace lockstep::train {

/// Returns this rank's micro-batches of the next step as CPU tensors, with the step's random seed,
/// dropout and embedding noise.
std::vector<nn::ForwardInputs> training_inputs(
    const Job& job, std::span<const data::MicroBatch> micro_batches);

/// Returns the largest absolute value of NEFTune's noise: alpha / sqrt(longest * width), where
/// `longest` is the number of tokens in the longest row of the micro-batch, to which transformers
/// pads the others.
double embedding_noise(double alpha, const data::MicroBatch& batch, int64_t width);

}  // namespace lockstep::train
