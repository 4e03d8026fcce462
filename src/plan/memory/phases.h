// Memory of a rank in each phase of a step.
#pragma once

#include <array>
#include <string_view>

#include "plan/memory/memory.h"

namespace lockstep::plan {

/// Phases of a step. `lockstep train --log-memory` prints their names. kIdle is the time between
/// two steps.
enum class Phase { kIdle, kForward, kBackward, kUpdate };
inline constexpr std::array<Phase, 4> kPhases{
    Phase::kIdle, Phase::kForward, Phase::kBackward, Phase::kUpdate};
std::string_view phase_name(Phase phase);

/// Returns a rank's peak memory in a phase, given its overall peak. The overall peak is in the
/// backward pass, which starts with all stored activations. A forward pass neither stores nor sends
/// gradients of activations. The optimizer step has no activations.
Memory memory_in(Phase phase, const Job& job, const Memory& peak);

}  // namespace lockstep::plan
