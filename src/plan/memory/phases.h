// Memory of a rank in each phase of a step.
#pragma once

#include <array>
#include <string_view>

#include "plan/memory/memory.h"

namespace lockstep::plan {

/// Phases of a step, with the names printed by `lockstep train --log-memory`. Idle is between two
/// steps.
enum class Phase { kIdle, kForward, kBackward, kUpdate };
inline constexpr std::array<Phase, 4> kPhases{
    Phase::kIdle, Phase::kForward, Phase::kBackward, Phase::kUpdate};
std::string_view phase_name(Phase phase);

/// Returns the peak memory of a phase of a rank with peak `peak`. The peak is in the backward pass,
/// which starts with all stored activations. A forward pass has no gradients of activations and
/// sends none. The optimizer step has no activations.
Memory memory_in(Phase phase, const Job& job, const Memory& peak);

}  // namespace lockstep::plan
