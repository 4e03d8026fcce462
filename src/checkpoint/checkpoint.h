// Checkpoints: a Hugging Face model folder plus the training state, written by all ranks at once and readable by any number of ranks.
//
//   checkpoint-<step>/
//     config.json, generation_config.json, tokenizer files ...   given by the caller, rank 0
//     model.safetensors, or model-0000i-of-0000N.safetensors and model.safetensors.index.json
//     optimizer-0000i-of-0000N.safetensors, optimizer.safetensors.index.json
//     state.json         step, tokens, seeds, sampler, generators, versions, configuration
//     manifest.json      every file's size and chunk hashes; written last
//
// A save writes to checkpoint-<step>.TOKEN.saving and renames it when everything is hashed and synced. A folder named
// checkpoint-<step> is therefore complete, or was damaged later, which the manifest reveals. No rank gathers anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/output_dir_lock.h"
#include "checkpoint/pieces.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

class CopyOnWriteState;  // checkpoint/copy_on_write_state.h
class ObjectStoreRun;    // checkpoint/object_store_run.h
struct SaveCache;        // checkpoint/save_cache.h

inline constexpr std::string_view kStateName = "state.json";

struct SaveOptions {
  /// Maximum tensor bytes per file; the next tensor starts a new file.
  uint64_t max_file_bytes = 5'000'000'000;
  /// Destination; null: the system's disk.
  Disk* disk = nullptr;
  /// This run's lock on the folder of checkpoints; null if no other run can write there. A save
  /// that has lost the lock is not committed.
  const OutputDirLock* hold = nullptr;
  /// Object store to which committed checkpoints are uploaded; null: none.
  ObjectStoreRun* stored = nullptr;
  /// Throw Error (numeric) if any tensor has NaN or Inf: a run could not resume from it and would
  /// have lost the previous checkpoint.
  bool finite = false;
  /// Pieces that training may modify before the save has ended; null: none.
  CopyOnWriteState* lent = nullptr;
  /// Reused between saves; null: nothing is cached.
  SaveCache* kept = nullptr;
};

/// Small files by base name: config.json and its like.
using SmallFiles = std::map<std::string, std::string>;

/// Writes a checkpoint to `folder` and atomically replaces an older checkpoint there. Every rank of
/// `communicator` (CPU tensors: Gloo) must call; blocks until the checkpoint is committed. `pieces`
/// are this rank's; the pieces of all ranks must cover every tensor exactly once, which is checked
/// before anything is written. `state` (JSON) and `files` are read on rank 0. If anything fails on
/// any rank, every rank throws an Error with that rank's number and reason, the partial checkpoint
/// is removed, and older checkpoints are unchanged.
void save_checkpoint(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    const std::string& state,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options = {});

/// Writes a plain model folder without state and manifest into a folder that may hold other files
/// (output_dir itself). Files are written under temporary names and renamed, the index last. Weight
/// files of an earlier save that a reader could mistake for these are removed first.
void save_model(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options = {});

/// A tensor that the reader of a checkpoint wants to find.
struct ExpectedTensor {
  std::string file_group;
  std::string name;
  std::vector<int64_t> shape;
  std::optional<at::ScalarType> dtype = std::nullopt;  // nullopt: any floating type, converted
};

/// A verified checkpoint. Reading touches only the requested pages. Move-only.
class Checkpoint {
 public:
  /// Verifies and opens the folder; the hashes are divided among the ranks. Every rank must call.
  /// If the folder is damaged, all throw the same Error (checkpoint) with file and tensors.
  static Checkpoint open(
      const std::filesystem::path& folder,
      comm::Communicator& communicator,
      Verify depth = Verify::kHashes);

  const std::filesystem::path& folder() const { return folder_; }
  /// state.json.
  const std::string& state() const { return state_; }
  /// True if the checkpoint has the small file; read_file() returns its content.
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }
  std::string file(const std::string& name) const;

  bool has_group(const std::string& group) const { return groups_.contains(group); }
  /// Returns the tensors of "model" or "optimizer"; throws if there are none.
  const TensorFiles& group(const std::string& group) const;

  /// Throws Error (checkpoint) with all problems, by file and tensor, if a tensor is missing or has
  /// another shape or type, or (kRefuse) if the groups in `expected` contain other tensors.
  enum class Extra { kRefuse, kAllow };
  void check(std::span<const ExpectedTensor> expected, Extra extra = Extra::kRefuse) const;

  /// Reads elements [begin, begin + out.numel()) of a tensor, converted to out's floating type.
  void read(const std::string& group, const std::string& name, int64_t begin, const at::Tensor& out)
      const;
  /// Fills the data of a piece, sharded in any way; its shape must be the tensor's.
  void read(const Piece& piece) const;
  /// The same for several pieces, with a check of shapes.
  void read(std::span<const Piece> pieces) const;

 private:
  friend std::optional<Checkpoint> latest_checkpoint(
      const std::filesystem::path& output_dir, comm::Communicator& communicator);
  static Checkpoint open_verified(
      const std::filesystem::path& folder, Manifest manifest, comm::Communicator& communicator);

  std::filesystem::path folder_;
  Manifest manifest_;
  std::string state_;
  std::map<std::string, TensorFiles> groups_;
};

/// Returns the newest committed checkpoint of `output_dir` that is complete, verified to the last
/// byte. Damaged ones are skipped with a warning. Returns nullopt if there is no checkpoint; throws
/// Error (checkpoint) if there are some and none is complete. Every rank must call.
std::optional<Checkpoint> latest_checkpoint(
    const std::filesystem::path& output_dir, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
