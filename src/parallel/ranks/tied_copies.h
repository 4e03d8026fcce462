// The embedding that the first stage of a pipeline looks tokens up in and the last one's head
// multiplies with: one parameter, of which both stages hold a copy.
#pragma once

#include <string>

#include "mesh/cut.h"
#include "nn/language_model.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Whether the model is a stage that holds one of the two copies of a tied weight.
bool holds_tied_copy(const nn::LanguageModel& model);
/// Whether this parameter of it is that copy, or what is trained beside it.
bool is_tied_copy(const nn::LanguageModel& model, const std::string& parameter);

/// Counts the other stage's copy among those of a part that the model holds of the tied weight; the
/// first stage's come first.
void count_other_copy(const nn::LanguageModel& model, mesh::Cut& part);
/// The same of the parameters of a stage, where it holds a copy.
void count_tied_copies(nn::LanguageModel& model, ShardedParameters& parameters);

}  // namespace lockstep::parallel
