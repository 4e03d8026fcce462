// Expert parallelism: each of some ranks that see other tokens holds a part of a mixture's experts,
// and tokens go to the ranks of their experts and back (Lepikhin et al., "GShard", 2020, section
// 3.2). The ranks that hold the same experts sum these gradients among themselves alone.
#pragma once

#include <set>
#include <string>

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::parallel {

/// Groups of this rank among those that see other tokens (ParallelGroups::gradients).
struct ExpertGroups {
  comm::Communicator* exchange = nullptr;  // neighbours that hold all experts between them
  comm::Communicator* holders = nullptr;   // those that hold the same experts as this one
  bool in_halves = false;  // of the tokens: one computes while the other is on its way
  bool are_spread() const { return exchange != nullptr && exchange->size() > 1; }
};

/// Groups of `ranks` neighbours; 1: nothing is spread. Every rank must call; `axes` owns the
/// groups. Error (config) where the number does not divide that of the ranks.
ExpertGroups make_expert_groups(ParallelGroups& axes, int ranks, bool in_halves);

/// Leaves this rank its experts of every mixture (the first E % n ranks hold one more), and sends
/// rows of tokens to those of the others. After tensor parallelism. Every rank must call. Error
/// (config) where the model has fewer experts than ranks.
void apply_expert_parallel(nn::LanguageModel& model, const ExpertGroups& groups);

/// The names of the parameters that belong to experts, those of adapters beside them too.
std::set<std::string> expert_parameters(nn::LanguageModel& model);

}  // namespace lockstep::parallel
