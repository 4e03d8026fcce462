// Ways for an adapter's factors to begin that look at the base's weights, or draw both factors at
// once: PiSSA (Meng et al., 2024), OLoRA (Büyükakyüz, 2024), and orthogonal ones.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "model/adapters.h"
#include "model/source.h"
#include "parallel/parallelize.h"

namespace lockstep::train {

/// The names of factors whose first values are made together, two and two.
std::set<std::string> factors_made_together(
    const model::Adapters& adapters, const model::ModelConfig& config);
/// Whether the factors begin as a part of the base's weights, which are then what is left: the
/// model without its adapter is not the base.
bool take_from_base(const model::LoraConfig& config);

/// Error (config) where they do, and the folder's weights are packed.
void check_taken_base(const model::LoraConfig& config, const model::ModelSource& base);

/// `base`, and the first values of factors that are made together, under their names; the weights
/// that they take from are W - s B A with these, also where a saved adapter's own values are used
/// (PEFT's reader makes them anew, too). Takes the decomposition of each matrix that a rank holds a
/// part of, once. For other ways to begin `base` as it is.
parallel::ModelSpec::Fill with_initial_factors(
    const model::Adapters& adapters,
    const model::ModelConfig& config,
    parallel::ModelSpec::Fill base,
    uint64_t seed);

}  // namespace lockstep::train
