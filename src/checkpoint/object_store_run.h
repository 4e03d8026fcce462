// Run whose output_dir is in an object store. The run uses a local folder and uploads each
// checkpoint after saving it. Other files are uploaded with a checkpoint and at the end of the run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/object_store_state.h"
#include "checkpoint/output_dir_lock.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

class ObjectStoreRun {
 public:
  /// Takes the lease of the store's folder for this run and downloads all files except checkpoints
  /// into `work` (locked by the caller, visible to all ranks). Checkpoints are downloaded on
  /// demand. Every rank must call. Throws Error (environment) on all ranks, naming the owner, if
  /// another run has the lease. Takes over a lease that is not renewed for 30 s; takes over the
  /// lease of an earlier round of the same launch immediately.
  static std::unique_ptr<ObjectStoreRun> take(
      const objects::Location& place,
      const std::filesystem::path& work,
      const RunIdentity& run,
      comm::Communicator& communicator);
  /// Uploads the remaining files and releases the lease.
  ~ObjectStoreRun();
  ObjectStoreRun(const ObjectStoreRun&) = delete;
  ObjectStoreRun& operator=(const ObjectStoreRun&) = delete;

  const objects::Location& place() const { return place_; }

  /// Uploads a complete checkpoint of the working folder and commits it, then uploads the other
  /// files. The files of the checkpoint are divided among the ranks. If any rank fails, all ranks
  /// throw, and the store's checkpoints are unchanged. Must be called on every rank.
  void publish(const std::filesystem::path& folder, comm::Communicator& communicator);
  /// Like rotate_checkpoints, in the store and in the working folder. Without a limit, all
  /// checkpoints in the store remain. Only the newest checkpoint remains in the working folder.
  /// Must be called on rank 0.
  void rotate(std::optional<int64_t> limit, std::span<const int64_t> keep_steps);
  /// Uploads changed files of the working folder that do not belong to a checkpoint. Must be called
  /// on rank 0.
  void publish_files();

  /// Returns the names of the files and folders in the run's folder. Called by rank 0.
  std::vector<std::string> names();
  /// Removes files and checkpoints by name, in the store and in the working folder. Called by rank
  /// 0.
  void remove_files(std::span<const std::string> names);

  /// As latest_checkpoint, for the store; downloads the checkpoint into the working folder. Every
  /// rank must call.
  std::optional<Checkpoint> latest(comm::Communicator& communicator);
  /// Returns the folder of a step's checkpoint, which is downloaded if necessary. Returns nullopt
  /// if there is no committed checkpoint of this step. Must be called on every rank.
  std::optional<std::filesystem::path> fetch(int64_t step, comm::Communicator& communicator);

 private:
  ObjectStoreRun(objects::Location place, std::filesystem::path work);
  void claim(const RunIdentity& run);
  std::optional<ObjectStoreState> try_to_take();
  bool is_given_up(const ObjectStoreLease& other, const RunIdentity& run) const;
  void fetch_files(const ObjectStoreState& state);
  void remove_strange_copies(const std::vector<ObjectStoreCheckpoint>& committed);
  void beat();
  /// Throws Error (checkpoint) if another run has taken the lease.
  void check() const;
  /// Removes files that do not belong to a valid checkpoint. Throws like check().
  void remove_leftovers();
  void commit(int64_t step, const std::string& name, Manifest manifest);
  void remove(const ObjectStoreCheckpoint& stored);
  std::filesystem::path bring(
      const ObjectStoreCheckpoint& stored, comm::Communicator& communicator);
  std::vector<ObjectStoreCheckpoint> agree_on_committed(comm::Communicator& communicator);

  objects::Location place_;
  std::filesystem::path work_;
  ObjectStoreLease hold_;  // rank 0 only
  int64_t sequence_ = 0;   // highest commit number in the store; rank 0 only
  KnownManifests known_;   // rank 0 only
  std::map<std::string, std::pair<uint64_t, int64_t>> published_;  // size and time, by name
  mutable std::mutex mutex_;                                       // protects hold_
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace lockstep::checkpoint
