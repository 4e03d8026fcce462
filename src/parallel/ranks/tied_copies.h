// Tied embedding in a pipeline: the first stage (embedding) and the last stage (head) each hold a
// copy of the parameter.
#pragma once

#include <string>

#include "mesh/cut.h"
#include "nn/language_model.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Returns true if the model is a stage that holds one of the two copies of a tied weight.
bool holds_tied_copy(const nn::LanguageModel& model);
/// Returns true if the parameter is such a copy, or an adapter on it.
bool is_tied_copy(const nn::LanguageModel& model, const std::string& parameter);

/// Adds the other stage's copy to the replica count of a shard of a tied weight. The replicas of
/// the first stage are numbered first.
void count_other_copy(const nn::LanguageModel& model, mesh::Cut& part);
/// Applies count_other_copy to the tied parameters of a stage, if it holds a copy.
void count_tied_copies(nn::LanguageModel& model, ShardedParameters& parameters);

}  // namespace lockstep::parallel
