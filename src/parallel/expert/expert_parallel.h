// Expert parallelism: ranks that process different tokens each hold a subset of a mixture's
// experts, and tokens are sent to the ranks of their experts and back (Lepikhin et al., "GShard",
// 2020, section 3.2). Gradients of experts are summed only over the ranks that hold the same
// experts.
#pragma once

#include <set>
#include <string>

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// Groups of this rank among those that process other tokens (ParallelGroups::data_context).
struct ExpertGroups {
  comm::Communicator* exchange = nullptr;  // neighbors that together hold all experts
  comm::Communicator* holders = nullptr;   // ranks that hold the same experts as this one
  bool in_halves = false;  // split tokens in two halves: one computes while the other is in transit
  bool are_spread() const { return exchange != nullptr && exchange->size() > 1; }
};

/// Groups of `ranks` neighbors; 1: experts are not distributed. Every rank must call; `axes` owns
/// the groups. Throws Error (config) if the number does not divide that of the ranks.
ExpertGroups make_expert_groups(ParallelGroups& axes, int ranks, bool in_halves);

/// Keeps this rank's experts of every mixture (the first E % n ranks hold one more) and sends
/// tokens to those of the other ranks. Call after tensor parallelism. Every rank must call. Throws
/// Error (config) if the model has fewer experts than ranks.
void apply_expert_parallel(nn::LanguageModel& model, const ExpertGroups& groups);

/// Names of the parameters that belong to experts, including their adapters.
std::set<std::string> expert_parameters(nn::LanguageModel& model);

}  // namespace lockstep::parallel
