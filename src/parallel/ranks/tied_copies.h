// Tied embedding across a pipeline: the first stage (embedding) and the last stage (head) each hold
// a copy of the parameter.
#pragma once

#include <string>

#include "mesh/cut.h"
#include "nn/language_model.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// True if the model is a stage with one of the two copies of a tied weight.
bool holds_tied_copy(const nn::LanguageModel& model);
/// True if this parameter is that copy, or an adapter on it.
bool is_tied_copy(const nn::LanguageModel& model, const std::string& parameter);

/// Counts the other stage's copy among the replicas of a shard of the tied weight; the first
/// stage's come first.
void count_other_copy(const nn::LanguageModel& model, mesh::Cut& part);
/// The same for the parameters of a stage, if it holds a copy.
void count_tied_copies(nn::LanguageModel& model, ShardedParameters& parameters);

}  // namespace lockstep::parallel
