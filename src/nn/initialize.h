// Random initial weights, generated from the parameter name and the global element index, so that
// the values do not depend on the plan.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "model/description.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Fills `slice`, the elements [begin, begin + slice.numel()) of the flattened parameter, with
/// initial values. `slice` must be contiguous and may have any floating-point type; values are
/// rounded from float32. CPU and CUDA produce the same numbers.
void fill_initial(
    Tensor slice, const model::ParameterSpec& parameter, uint64_t seed, int64_t begin = 0);

/// Initializes all parameters of the model as the authors of its family specify.
void initialize(LanguageModel& model, uint64_t seed);

/// Initializes the rows that were added when the vocabulary grew from `old_vocabulary` tokens, in
/// the embedding and in an untied head: the mean of the old rows plus the family's initial noise.
/// (Rows far from the mean would start with a large loss.)
void initialize_new_rows(LanguageModel& model, int64_t old_vocabulary, uint64_t seed);
/// Overload for one whole embedding or head, [V, C].
void initialize_new_rows(
    Tensor embedding, const model::ParameterSpec& spec, int64_t old_vocabulary, uint64_t seed);

}  // namespace lockstep::nn
