// Expert parallelism (Lepikhin et al., "GShard", 2020, section 3.2). Ranks that process different
// tokens each hold a subset of the experts. Tokens are sent to the ranks of their experts, and the
// results are sent back. Gradients of experts are summed only over the ranks that hold the same
// experts.
#pragma once

#include <set>
#include <string>

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// This rank's groups among the ranks that process different tokens (ParallelGroups::data_context).
struct ExpertGroups {
  comm::Communicator* exchange = nullptr;  // neighboring ranks that together hold all experts
  comm::Communicator* holders = nullptr;   // ranks that hold the same experts as this rank
  bool in_halves = false;  // split tokens in two halves, so that one is computed while the other is
                           // sent
  bool are_spread() const { return exchange != nullptr && exchange->size() > 1; }
};

/// Creates groups of `ranks` neighbors; 1: experts are not distributed. Must be called on every
/// rank. `axes` owns the groups. Throws Error (config) if `ranks` does not divide the number of
/// ranks in data_context().
ExpertGroups make_expert_groups(ParallelGroups& axes, int ranks, bool in_halves);

/// Keeps this rank's experts of every mixture (the first E % n ranks hold one more) and sends
/// tokens of other experts to their ranks. Call after tensor parallelism, on every rank. Throws
/// Error (config) if the model has fewer experts than ranks.
void apply_expert_parallel(nn::LanguageModel& model, const ExpertGroups& groups);

/// Returns the names of the parameters that belong to experts, including their adapters.
std::set<std::string> expert_parameters(nn::LanguageModel& model);

}  // namespace lockstep::parallel
