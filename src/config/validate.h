// Validation of a configuration, before any device is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/problems.h"

namespace lockstep::config {

/// Makes equal what has two names: gradient_checkpointing=true is parallel.recompute=full,
/// resume_from_checkpoint=false is none. Two names with different values are a problem.
void settle(Config& config, Origins& origins, Problems& problems);

/// Ranges and combinations; each problem says what to change. `ranks`, where known, is checked
/// against `parallel`.
void validate(
    const Config& config,
    const Origins& origins,
    std::optional<int64_t> ranks,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Gives the keys of quantization what BitsAndBytesConfig's names of them say. Two names with
/// different values are a problem.
void settle_quantization(QuantizationSection& section, const Origins& origins, Problems& problems);

/// The arguments that lr_scheduler_kwargs may hold for a schedule.
std::vector<std::string> scheduler_arguments(const std::string& schedule);

}  // namespace lockstep::config
