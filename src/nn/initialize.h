// Random weights, drawn by parameter name and global element: any shard, of any plan, draws its own
// part.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Fills `slice`, which holds the elements [begin, begin + slice.numel()) of the flattened
/// parameter (contiguous, any float type, rounded from float32), with the parameter's initial
/// values. CPU and CUDA tensors get the same numbers.
void fill_initial(
    Tensor slice, const model::ParameterSpec& parameter, uint64_t seed, int64_t begin = 0);

/// Every parameter of the model, as the family's authors start it.
void initialize(LanguageModel& model, uint64_t seed);

/// After the vocabulary grew from `old_vocabulary`: the rows added to the embedding, and to a head
/// of its own, are the mean of the old rows plus the family's initial noise. (Far from the mean, a
/// new token would begin with a large loss.)
void initialize_new_rows(LanguageModel& model, int64_t old_vocabulary, uint64_t seed);
/// The same of one embedding or head, [V, C], whole.
void initialize_new_rows(
    Tensor embedding, const model::ParameterSpec& spec, int64_t old_vocabulary, uint64_t seed);

}  // namespace lockstep::nn
