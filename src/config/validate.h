// Validation of a configuration before any device is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "config/core/problems.h"

namespace lockstep::config {

/// Merges aliases: gradient_checkpointing=true sets parallel.recompute=full,
/// resume_from_checkpoint=false sets null. Two aliases with different values are a problem.
void settle(Config& config, Origins& origins, Problems& problems);

/// Checks ranges and combinations of values. Each problem has a hint. If `ranks` is known,
/// `parallel` is checked against it.
void validate(
    const Config& config,
    const Origins& origins,
    std::optional<int64_t> ranks,
    Problems& problems,
    std::vector<std::string>& warnings);

/// Returns true if data.prompt names a form of rows with prompts.
inline bool has_prompt(const DataSection& data) {
  return data.prompt != "none" && data.prompt != "auto";
}

/// Copies values set under BitsAndBytesConfig names to the keys of `section`. Two names with
/// different values are a problem.
void settle_quantization(QuantizationSection& section, const Origins& origins, Problems& problems);

/// Returns the names in lr_scheduler_kwargs that a schedule accepts.
std::vector<std::string> scheduler_arguments(const std::string& schedule);

}  // namespace lockstep::config
