// The memory of a rank in each phase of a step.
#pragma once

#include <array>
#include <string_view>

#include "plan/memory/memory.h"

namespace lockstep::plan {

/// Idle: between two steps. The names are those that `lockstep train --log-memory` prints.
enum class Phase { kIdle, kForward, kBackward, kUpdate };
inline constexpr std::array<Phase, 4> kPhases{
    Phase::kIdle, Phase::kForward, Phase::kBackward, Phase::kUpdate};
std::string_view phase_name(Phase phase);

/// What stands at the fullest moment of a phase, of a rank whose step needs `peak`. That is its
/// backward pass, which begins with all that the forward passes kept; a forward pass has no
/// gradients of activations and sends none, and activations are gone when the optimizer begins.
Memory memory_in(Phase phase, const Job& job, const Memory& peak);

}  // namespace lockstep::plan
