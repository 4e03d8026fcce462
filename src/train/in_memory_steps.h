// In-memory checkpoints of a job (checkpoint.in_memory_replicas=1). Their memory outlives the
// worker processes. Restarted workers write it to a checkpoint folder and resume from there.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Creates the in-memory checkpoint if checkpoint.in_memory_replicas is set and there is enough
/// memory; otherwise returns null. Must be called after the job's state has been restored, on every
/// rank.
std::unique_ptr<checkpoint::InMemoryCheckpoint> make_in_memory_checkpoint(
    Job& job, RankContext& rank_context);

/// Copies the state between two steps, if a copy is due. Returns the seconds for which this rank
/// did not train. Must be called on every rank.
double keep_step(Job& job, RankContext& rank_context);

/// Waits until the neighbour node has received the current copy, if any. Must be called on every
/// rank.
void wait_for_in_memory_step(Job& job);

/// Returns the checkpoint to resume from after a restart. If the previous workers left a complete
/// state in memory that is newer than the checkpoint `found`, writes it to a checkpoint folder and
/// returns this folder. Otherwise returns `found`. Must be called on every rank.
std::optional<std::filesystem::path> recover_in_memory_step(
    Job& job, const std::optional<std::filesystem::path>& found, RankContext& rank_context);

}  // namespace lockstep::train
