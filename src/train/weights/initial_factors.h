// Adapter initializations that depend on the base weights or draw both factors together: PiSSA
// (Meng et al., 2024), OLoRA (Büyükakyüz, 2024), and orthogonal initialization.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "model/adapters.h"
#include "model/source.h"
#include "parallel/parallelize.h"

namespace lockstep::train {

/// Names of the factors that are initialized in pairs.
std::set<std::string> factors_made_together(
    const model::Adapters& adapters, const model::ModelConfig& config);
/// Returns true if the initial factors are subtracted from the base weights. The model without its
/// adapter is then not the base model.
bool take_from_base(const model::LoraConfig& config);

/// Throws Error (config) if the factors are to be subtracted from packed base weights.
void check_taken_base(const model::LoraConfig& config, const model::ModelSource& base);

/// Returns a fill that sets factors that are initialized in pairs and uses `base` for all other
/// parameters. If the factors are subtracted from the base weights, the base weights become W - s B
/// A. This also happens if a saved adapter replaces the factors; PEFT recomputes them on loading,
/// too. Each matrix of which a rank holds a shard is decomposed once. For all other
/// initializations, returns `base`.
parallel::ModelSpec::Fill with_initial_factors(
    const model::Adapters& adapters,
    const model::ModelConfig& config,
    parallel::ModelSpec::Fill base,
    uint64_t seed);

}  // namespace lockstep::train
