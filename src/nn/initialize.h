// Random initial weights, drawn by parameter name and global element index: every shard of every
// plan gets the same values.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Fills `slice`, the elements [begin, begin + slice.numel()) of the flattened parameter, with its
/// initial values. `slice` is contiguous and of any float type; values are rounded from float32.
/// CPU and CUDA produce the same numbers.
void fill_initial(
    Tensor slice, const model::ParameterSpec& parameter, uint64_t seed, int64_t begin = 0);

/// Initializes all parameters of the model as specified by the family's authors.
void initialize(LanguageModel& model, uint64_t seed);

/// Initializes the rows that were added when the vocabulary grew from `old_vocabulary`: in the
/// embedding, and in an untied head, they are the mean of the old rows plus the family's initial
/// noise. (Rows far from the mean would start with a large loss.)
void initialize_new_rows(LanguageModel& model, int64_t old_vocabulary, uint64_t seed);
/// The same for one whole embedding or head, [V, C].
void initialize_new_rows(
    Tensor embedding, const model::ParameterSpec& spec, int64_t old_vocabulary, uint64_t seed);

}  // namespace lockstep::nn
