// Checkpoints: a Hugging Face model folder plus the training state. All ranks write in parallel,
// and any number of ranks can read.
//
//   checkpoint-<step>/
//     config.json, generation_config.json, tokenizer files ...   given by the caller, rank 0
//     model.safetensors, or model-0000i-of-0000N.safetensors and model.safetensors.index.json
//     optimizer-0000i-of-0000N.safetensors, optimizer.safetensors.index.json
//     state.json         step, tokens, seeds, sampler, generators, versions, configuration
//     manifest.json      every file's size and chunk hashes; written last
//
// A save writes to checkpoint-<step>.TOKEN.saving and renames the folder when all files are hashed
// and synced. A folder named checkpoint-<step> is therefore complete, unless it was damaged later;
// the manifest reveals this. No rank gathers the tensors of other ranks.
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
  /// Maximum number of tensor bytes per file. The next tensor then starts a new file.
  uint64_t max_file_bytes = 5'000'000'000;
  /// Disk to write to. Null: the local file system.
  Disk* disk = nullptr;
  /// This run's lock on the output folder. Null if no other run can write there. A save is not
  /// committed if the run has lost the lock.
  const OutputDirLock* hold = nullptr;
  /// Object store to which committed checkpoints are uploaded. Null: none.
  ObjectStoreRun* stored = nullptr;
  /// Throw Error (numeric) if a tensor has NaN or Inf. A run could not resume from such a
  /// checkpoint, and the previous checkpoint might be removed.
  bool finite = false;
  /// Pieces that training may modify before the end of the save. Null: none.
  CopyOnWriteState* lent = nullptr;
  /// Cache that is reused between saves. Null: no cache.
  SaveCache* kept = nullptr;
};

/// Small files such as config.json, by base name.
using SmallFiles = std::map<std::string, std::string>;

/// Writes a checkpoint to `folder` and atomically replaces an older checkpoint there. Must be
/// called on every rank of `communicator`, which must support CPU tensors (Gloo). Blocks until the
/// checkpoint is committed. `pieces` are this rank's pieces. The pieces of all ranks must cover
/// every tensor exactly once, which is checked before anything is written. `state` (JSON) and
/// `files` are only used on rank 0. If any rank fails, every rank throws an Error with the number
/// of this rank and the reason. The partial checkpoint is then removed, and older checkpoints are
/// unchanged.
void save_checkpoint(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    const std::string& state,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options = {});

/// Writes a model folder without state and manifest. The folder may contain other files (output_dir
/// itself). Files are written under temporary names and renamed, the index last. First removes
/// weight files of an earlier save that a reader could mistake for the new ones.
void save_model(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options = {});

/// Tensor that the reader expects in a checkpoint.
struct ExpectedTensor {
  std::string file_group;
  std::string name;
  std::vector<int64_t> shape;
  std::optional<at::ScalarType> dtype =
      std::nullopt;  // nullopt: any floating type; values are converted
};

/// Verified checkpoint. Reading accesses only the necessary pages of the files. Move-only.
class Checkpoint {
 public:
  /// Verifies and opens the folder. Hashing is divided among the ranks. If the folder is damaged,
  /// all ranks throw the same Error (checkpoint), which names the file and its tensors. Must be
  /// called on every rank.
  static Checkpoint open(
      const std::filesystem::path& folder,
      comm::Communicator& communicator,
      Verify depth = Verify::kHashes);

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns the content of state.json.
  const std::string& state() const { return state_; }
  /// Returns true if the checkpoint has this small file. file() returns its content.
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }
  std::string file(const std::string& name) const;

  bool has_group(const std::string& group) const { return groups_.contains(group); }
  /// Returns the tensors of the group "model" or "optimizer". Throws if the checkpoint has none.
  const TensorFiles& group(const std::string& group) const;

  /// Throws Error (checkpoint) if a tensor is missing or has another shape or type. The error lists
  /// all problems by file and tensor. With kRefuse, a tensor that is not in `expected` is also a
  /// problem if `expected` has other tensors of its group.
  enum class Extra { kRefuse, kAllow };
  void check(std::span<const ExpectedTensor> expected, Extra extra = Extra::kRefuse) const;

  /// Reads elements [begin, begin + out.numel()) of a tensor, converted to out's floating type.
  void read(const std::string& group, const std::string& name, int64_t begin, const at::Tensor& out)
      const;
  /// Fills the data of a piece. The piece may have any sharding; its shape must be that of the
  /// tensor.
  void read(const Piece& piece) const;
  /// Fills the data of several pieces and checks their shapes.
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

/// Returns the newest committed checkpoint of `output_dir` that is complete, after verifying all
/// bytes. Skips damaged checkpoints with a warning. Returns nullopt if there is no checkpoint.
/// Throws Error (checkpoint) if checkpoints exist but none is complete. Must be called on every
/// rank.
std::optional<Checkpoint> latest_checkpoint(
    const std::filesystem::path& output_dir, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
