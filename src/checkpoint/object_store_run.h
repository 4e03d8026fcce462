// A run whose output_dir is in an object store. It works in a folder of this machine's, and what is
// whole there is brought to the store: checkpoints when they are saved, the other files with them
// and at the end.
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
  /// Takes the place for this run, and makes `work` (which the caller holds, and all ranks see)
  /// what the store has, but for checkpoints, which are fetched when they are asked for. Every rank
  /// must call. Error (environment) on all ranks, naming the holder, where another run has it: one
  /// that shows no life for half a minute is taken over from, and an earlier round of the same job
  /// at once.
  static std::unique_ptr<ObjectStoreRun> take(
      const objects::Location& place,
      const std::filesystem::path& work,
      const RunIdentity& run,
      comm::Communicator& communicator);
  /// Brings what files are left, and lets the place go.
  ~ObjectStoreRun();
  ObjectStoreRun(const ObjectStoreRun&) = delete;
  ObjectStoreRun& operator=(const ObjectStoreRun&) = delete;

  const objects::Location& place() const { return place_; }

  /// Brings a checkpoint that stands whole in the working folder to the store, files dealt over the
  /// ranks, and commits it there; then the other files. Every rank must call; all throw where one
  /// fails, and the store's checkpoints are as they were.
  void publish(const std::filesystem::path& folder, comm::Communicator& communicator);
  /// As rotate_checkpoints, in the store (without a limit: all stay) and in the working folder,
  /// where the newest is enough. For rank 0.
  void rotate(std::optional<int64_t> limit, std::span<const int64_t> keep_steps);
  /// Brings files of the working folder that are no checkpoint's and have changed. For rank 0.
  void publish_files();

  /// As latest_checkpoint, of the store: fetched into the working folder. Every rank must call.
  std::optional<Checkpoint> latest(comm::Communicator& communicator);
  /// The folder of a step's checkpoint, fetched if need be; nothing where it is not committed.
  /// Every rank must call.
  std::optional<std::filesystem::path> fetch(int64_t step, comm::Communicator& communicator);

 private:
  ObjectStoreRun(objects::Location place, std::filesystem::path work);
  void claim(const RunIdentity& run);
  std::optional<ObjectStoreState> try_to_take();
  bool is_given_up(const ObjectStoreLease& other, const RunIdentity& run) const;
  void fetch_files(const ObjectStoreState& state);
  void remove_strange_copies(const std::vector<ObjectStoreCheckpoint>& committed);
  void beat();
  /// Error (checkpoint) where another run has the place by now.
  void check() const;
  /// What no checkpoint that counts is made of; as check().
  void remove_leftovers();
  void commit(int64_t step, const std::string& name, Manifest manifest);
  void remove(const ObjectStoreCheckpoint& stored);
  std::filesystem::path bring(
      const ObjectStoreCheckpoint& stored, comm::Communicator& communicator);
  std::vector<ObjectStoreCheckpoint> agree_on_committed(comm::Communicator& communicator);

  objects::Location place_;
  std::filesystem::path work_;
  ObjectStoreLease hold_;  // rank 0's
  int64_t sequence_ = 0;   // the highest in the store; rank 0's
  KnownManifests known_;   // rank 0's
  std::map<std::string, std::pair<uint64_t, int64_t>> published_;  // size and time, by name
  mutable std::mutex mutex_;                                       // of hold_
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace lockstep::checkpoint
