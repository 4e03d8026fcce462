// Checkpoint of the best evaluation: its record in state.json, and loading it at the end of a run.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "train/best.h"
#include "train/job.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {

/// Writes the best evaluations to the content of a state.json in `output_dir`.
void write_best(nlohmann::ordered_json& state, const Best& best, const std::string& output_dir);
/// Reads what write_best() wrote to the state.json of the checkpoint `folder`.
Best read_best(const nlohmann::json& state, const std::filesystem::path& folder);

/// After a resume: forgets the best checkpoint if its folder no longer exists, with a warning. Must
/// be called on every rank.
void check_best_checkpoint(Job& job, RankContext& rank_context);

/// Records that `folder` contains the weights of the current step.
void observe_save(Job& job, const std::filesystem::path& folder);

/// Loads the weights of the best checkpoint (load_best_model_at_end). Without one, the weights of
/// the last step remain, and a warning says why. Must be called on every rank.
void load_best_model(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
