// Identity of a run: its data and settings. It is saved in checkpoints and compared on resume.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "train/job.h"

namespace lockstep::train {

/// Returns "data" and "settings", each by configuration key. "data" determines the sample at each
/// position. "settings" determine the computation of a step.
nlohmann::ordered_json identity_of(const Job& job);

/// Differences, such as "data.sequence_length: 32 there, 16 here".
struct IdentityDifferences {
  std::vector<std::string> data, settings;
};
/// Compares the identity of a checkpoint with that of this run. Ignores keys that only one of them
/// has.
IdentityDifferences compare_identities(const nlohmann::json& there, const nlohmann::json& here);

/// Compares the job with the checkpoint `source`; `state` is the checkpoint's state. Throws Error
/// (config) if the data differs, unless the configuration allows it. Logs a warning on rank 0 if
/// settings differ.
void check_identity(
    const Job& job,
    const RankContext& rank_context,
    const nlohmann::json& state,
    const std::string& source);

}  // namespace lockstep::train
