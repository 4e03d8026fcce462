// What a run is trained on and how: kept in its checkpoints, and compared when one is resumed.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "train/job.h"

namespace lockstep::train {

/// "data": what decides which sample a position is of. "settings": what the steps' mathematics
/// depends on, by the names of the configuration's keys.
nlohmann::ordered_json identity_of(const Job& job);

/// What differs, in words: "data.sequence_length: 32 there, 16 here".
struct IdentityDifferences {
  std::vector<std::string> data, settings;
};
/// Of a checkpoint's identity and this run's. Names that one of them does not have are not
/// compared.
IdentityDifferences compare_identities(const nlohmann::json& there, const nlohmann::json& here);

/// Of the checkpoint `source`, whose state this is, and the job. Other data: Error (config), unless
/// the configuration allows them; other settings: a warning, of rank 0.
void check_identity(
    const Job& job,
    const RankContext& rank_context,
    const nlohmann::json& state,
    const std::string& source);

}  // namespace lockstep::train
