// Identity of a run: its data and settings, saved in checkpoints and compared on resume.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "train/job.h"

namespace lockstep::train {

/// Returns "data", which determines the sample at each position, and "settings", which determine
/// the computation of a step, by configuration key.
nlohmann::ordered_json identity_of(const Job& job);

/// Descriptions of differences: "data.sequence_length: 32 there, 16 here".
struct IdentityDifferences {
  std::vector<std::string> data, settings;
};
/// Compares the identity of a checkpoint with that of this run. Names that only one of them has are
/// ignored.
IdentityDifferences compare_identities(const nlohmann::json& there, const nlohmann::json& here);

/// Compares the job with the checkpoint `source`, whose state is given. Throws Error (config) for
/// different data, unless the configuration allows it. Warns on rank 0 about different settings.
void check_identity(
    const Job& job,
    const RankContext& rank_context,
    const nlohmann::json& state,
    const std::string& source);

}  // namespace lockstep::train
