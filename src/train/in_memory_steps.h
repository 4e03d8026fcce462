// The state of each step in memory that outlives the ranks (checkpoint.replicas=1): kept while a
// run trains, and brought back as a checkpoint by the ranks that are started again.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Keeps states in memory, where checkpoint.replicas asks for it and there is some. Every rank must
/// call, once the job is what it was.
std::unique_ptr<checkpoint::InMemoryCheckpoint> make_in_memory_checkpoint(
    Job& job, RankContext& rank_context);

/// Keeps the state as it is, between two steps, if it is due; returns the seconds that this rank
/// did not train. Every rank must call.
double keep_step(Job& job, RankContext& rank_context);

/// Waits until the neighbour has the copy that is under way, if any. Every rank must call.
void wait_for_in_memory_step(Job& job);

/// In a later round of a job, where the ranks before left a whole state in memory that is newer
/// than the checkpoint `found`: makes a checkpoint of it, and returns that. Every rank must call.
std::optional<std::filesystem::path> recover_in_memory_step(
    Job& job, const std::optional<std::filesystem::path>& found, RankContext& rank_context);

}  // namespace lockstep::train
