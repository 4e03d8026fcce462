// In-memory checkpoints of a job (checkpoint.replicas=1). The memory survives the worker processes;
// restarted workers write it out as a checkpoint and resume from that.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "train/job.h"

namespace lockstep::train {

/// Creates the in-memory checkpoint if checkpoint.replicas is set and memory is available;
/// otherwise returns null. Every rank must call, after the job's state has been restored.
std::unique_ptr<checkpoint::InMemoryCheckpoint> make_in_memory_checkpoint(
    Job& job, RankContext& rank_context);

/// Copies the state between two steps, if due. Returns the seconds during which this rank did not
/// train. Every rank must call.
double keep_step(Job& job, RankContext& rank_context);

/// Waits until the neighbour node has received the current copy, if any. Every rank must call.
void wait_for_in_memory_step(Job& job);

/// After a restart, checks if the previous workers left a complete state in memory that is newer
/// than the checkpoint `found`. If so, writes it as a checkpoint and returns its folder; otherwise
/// returns `found`. Every rank must call.
std::optional<std::filesystem::path> recover_in_memory_step(
    Job& job, const std::optional<std::filesystem::path>& found, RankContext& rank_context);

}  // namespace lockstep::train
