// Lists, rotates and cleans the checkpoints of an output folder.
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
/// Returns the step of a folder named checkpoint-<step>, or nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

struct ListedCheckpoint {
  std::filesystem::path folder;
  int64_t step = 0;
  /// Commit number from the manifest. -1 if the manifest is missing or cannot be read (not
  /// committed, damaged, or written by another program).
  int64_t sequence = -1;
};

/// Lists the folders checkpoint-<step> of `output_dir` in the order of their commits, newest first.
/// This differs from the order of steps if a run resumed from an older checkpoint. Reads only the
/// manifests. Called on one rank.
std::vector<ListedCheckpoint> list_checkpoints(const std::filesystem::path& output_dir);

/// Throws Error (checkpoint) if the folder is missing or is the output folder of a run.
void check_is_no_run(const std::filesystem::path& folder);

/// Removes the oldest committed checkpoints until at most `limit` remain. Never removes the newest
/// checkpoint whose files all have their full size, the checkpoints in `keep` (the best one; it
/// counts within the limit), or folders that are not Lockstep checkpoints. If a removal fails, logs
/// a warning. Called on one rank after a save.
void rotate_checkpoints(
    const std::filesystem::path& output_dir,
    int64_t limit,
    std::span<const std::filesystem::path> keep = {},
    Disk& disk = system_disk());

/// Decides which checkpoints a rotation removes. It is asked for each checkpoint, newest first.
class Rotation {
 public:
  /// `kept` is the number of listed checkpoints that are never removed for their age.
  Rotation(int64_t limit, int64_t kept) : limit_(limit), kept_(kept) {}
  /// `whole`: all files have their full size. `is_kept`: the checkpoint is one of those that are
  /// never removed for their age.
  bool removes(bool whole, bool is_kept);

 private:
  int64_t limit_, kept_;
  bool has_newest_ = false;  // the newest whole checkpoint has been seen
};

/// Returns the folder to which checkpoint-<step> is written: checkpoint-<step>.TOKEN.saving.
std::filesystem::path saving_folder(
    const std::filesystem::path& folder, const std::string& token = "");

/// Removes the remains of a killed save or rotation from `output_dir` and restores a checkpoint
/// that was being replaced. Unfinished saves of a run that holds the lock are only removed if
/// `hold` is its lock. Called on one rank while this run is not saving.
void clean_leftovers(
    const std::filesystem::path& output_dir,
    Disk& disk = system_disk(),
    const OutputDirLock* hold = nullptr);

/// Throws on every rank if the ranks do not all see the same `folder`. The error names the ranks
/// that do not see it. Rank 0 writes a token, and the other ranks look for it. Creates the folder.
/// Must be called on every rank, before training.
void check_shared_folder(const std::filesystem::path& folder, comm::Communicator& communicator);

/// Suffixes of checkpoint-<step> while it is written, replaced or removed.
inline constexpr std::string_view kSavingSuffix = ".saving";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
inline constexpr std::string_view kRemovingSuffix = ".removing";

}  // namespace lockstep::checkpoint
