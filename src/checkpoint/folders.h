// The checkpoints of an output folder: which there are, which is the newest that can be trusted,
// which are too many.
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

/// checkpoint-<step>.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, int64_t step);
/// The step of a folder named checkpoint-<step>; nothing for any other name.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

struct ListedCheckpoint {
  std::filesystem::path folder;
  int64_t step = 0;
  /// From its manifest; -1 where that is missing or unreadable (not committed, damaged, or another
  /// program's).
  int64_t sequence = -1;
};

/// The folders checkpoint-<step> of `output_dir`, the newest first: by the order in which they were
/// committed, which is not the order of steps after a run went back to an older one. Reads
/// manifests only. For one rank.
std::vector<ListedCheckpoint> list_checkpoints(const std::filesystem::path& output_dir);

/// Error (checkpoint) where the folder is not there, or is a run's and holds checkpoints.
void check_is_no_run(const std::filesystem::path& folder);

/// Removes the oldest committed checkpoints until at most `limit` remain; `limit` below 1 counts
/// as 1. Never removed are the newest whose files are all there in full size, those in `keep` (the
/// best one), and folders that are no checkpoint of Lockstep. A failure to remove is a warning. For
/// one rank, after a save.
void rotate_checkpoints(
    const std::filesystem::path& output_dir,
    int64_t limit,
    std::span<const std::filesystem::path> keep = {},
    Disk& disk = system_disk());

/// Where checkpoint-<step> is made: checkpoint-<step>.TOKEN.saving.
std::filesystem::path saving_folder(
    const std::filesystem::path& folder, const std::string& token = "");

/// Removes what a save or a rotation that was killed left in `output_dir`, and puts back a
/// checkpoint that it was just replacing. Saves of a run that holds the folder stay, where `hold`
/// is not that run's. For one rank, while no save of this run is under way.
void clean_leftovers(
    const std::filesystem::path& output_dir,
    Disk& disk = system_disk(),
    const OutputDirLock* hold = nullptr);

/// Fails on every rank, naming those that do not see it, where `folder` is not one and the same for
/// all: rank 0 writes a token, the others look for it. Every rank calls, before training. Creates
/// the folder.
void check_shared_folder(const std::filesystem::path& folder, comm::Communicator& communicator);

/// Names beside checkpoint-<step> while it is made, swapped and taken away.
inline constexpr std::string_view kSavingSuffix = ".saving";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
inline constexpr std::string_view kRemovingSuffix = ".removing";

}  // namespace lockstep::checkpoint
