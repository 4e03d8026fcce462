// Checkpoints of an output folder: listing, rotation and cleanup.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/output_dir_lock.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Returns `output_dir`/checkpoint-<step>.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, int64_t step);
/// Returns the step of a folder named checkpoint-<step>; nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

struct ListedCheckpoint {
  std::filesystem::path folder;
  int64_t step = 0;
  /// Commit number from the manifest; -1 if the manifest is missing or unreadable (not committed,
  /// damaged, or written by another program).
  int64_t sequence = -1;
};

/// Lists the folders checkpoint-<step> of `output_dir`, newest first in the order of their commits.
/// That order differs from the order of steps after a run resumed from an older checkpoint. Reads
/// manifests only. Called by one rank.
std::vector<ListedCheckpoint> list_checkpoints(const std::filesystem::path& output_dir);

/// Throws Error (checkpoint) if the folder is missing or is the output folder of a run.
void check_is_no_run(const std::filesystem::path& folder);

/// Removes the oldest committed checkpoints until at most `limit` remain; `limit` below 1 counts as
/// 1. Never removes the newest checkpoint whose files all have full size, the checkpoints in `keep`
/// (the best one), or folders that are not Lockstep checkpoints. A failed removal is logged as a
/// warning. Called by one rank after a save.
void rotate_checkpoints(
    const std::filesystem::path& output_dir,
    int64_t limit,
    std::span<const std::filesystem::path> keep = {},
    Disk& disk = system_disk());

/// Returns the folder in which checkpoint-<step> is written: checkpoint-<step>.TOKEN.saving.
std::filesystem::path saving_folder(
    const std::filesystem::path& folder, const std::string& token = "");

/// Removes leftovers of a killed save or rotation from `output_dir` and restores a checkpoint that
/// was being replaced. Unfinished saves of the run that holds the lock are not removed, unless
/// `hold` is that run's lock. Called by one rank while no save of this run is in progress.
void clean_leftovers(
    const std::filesystem::path& output_dir,
    Disk& disk = system_disk(),
    const OutputDirLock* hold = nullptr);

/// Throws on every rank if `folder` is not the same folder for all ranks; the error names the ranks
/// that do not see it. Rank 0 writes a token and the other ranks look for it. Every rank must call,
/// before training. Creates the folder.
void check_shared_folder(const std::filesystem::path& folder, comm::Communicator& communicator);

/// Suffixes of checkpoint-<step> while it is written, replaced and removed.
inline constexpr std::string_view kSavingSuffix = ".saving";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
inline constexpr std::string_view kRemovingSuffix = ".removing";

}  // namespace lockstep::checkpoint
