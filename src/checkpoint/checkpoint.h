// The checkpoint: a Hugging Face model folder with the state of training beside it, written by all
// ranks at once and read by any number of them.
//
//   checkpoint-<step>/
//     config.json, generation_config.json, tokenizer files ...   given by the caller, rank 0
//     model.safetensors, or model-0000i-of-0000N.safetensors and model.safetensors.index.json
//     optimizer-0000i-of-0000N.safetensors, optimizer.safetensors.index.json
//     state.json         step, tokens, seeds, sampler, generators, versions, configuration
//     manifest.json      every file's size and chunk hashes; last
//
// A save goes into checkpoint-<step>.TOKEN.saving, which gets its name when all of it is hashed and
// on the device: what is called checkpoint-<step> is whole, or was damaged since, and then the
// manifest tells. No rank gathers anything.
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
  /// The most tensor bytes of a file; the next tensor begins a new one.
  uint64_t max_file_bytes = 5'000'000'000;
  /// Where it goes; null is the system's disk.
  Disk* disk = nullptr;
  /// This run's hold on the folder that checkpoints are in; null where nobody else can write there.
  /// A save that has lost it is not committed.
  const OutputDirLock* hold = nullptr;
  /// Where checkpoints are brought to once they are whole here; null where this is their place.
  ObjectStoreRun* stored = nullptr;
  /// Whether an infinity or NaN in any tensor is an error (numeric): a run could not go on from
  /// it, and would have lost the checkpoint before it.
  bool finite = false;
  /// What of the pieces may be written to before the save has ended; null: nothing.
  CopyOnWriteState* lent = nullptr;
  /// What the save before has left, and this one leaves to the next; null: nothing.
  SaveCache* kept = nullptr;
};

/// Small files by base name: config.json and its like.
using SmallFiles = std::map<std::string, std::string>;

/// Writes a checkpoint to `folder`, which is replaced in one step where it is an older checkpoint.
/// Every rank of `communicator` (CPU tensors: Gloo) must call, and blocks until the checkpoint is
/// committed. `pieces` are this rank's; those of all ranks must be every tensor exactly once, which
/// is checked before anything is written. `state` (JSON) and `files` count on rank 0. Where
/// anything fails on any rank, every rank throws an Error with that rank's number and reason, what
/// was written is removed, and older checkpoints stand as before.
void save_checkpoint(
    const std::filesystem::path& folder,
    std::span<const Piece> pieces,
    const std::string& state,
    const SmallFiles& files,
    comm::Communicator& communicator,
    const SaveOptions& options = {});

/// The same without state and manifest, into a folder that may hold other things (output_dir
/// itself): a plain model folder. The files are made aside and then renamed into place, an index
/// last; weights of an earlier save that would be taken for these are removed first.
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
  std::optional<at::ScalarType> dtype = std::nullopt;  // none: any floating type, converted
};

/// A checkpoint that was found to be whole. Reading touches just the pages asked for. Move-only.
class Checkpoint {
 public:
  /// Verifies the folder, hashes dealt over the ranks, and opens it. Every rank must call; all
  /// throw the same Error (checkpoint), which names file and tensors, where it is damaged.
  static Checkpoint open(
      const std::filesystem::path& folder,
      comm::Communicator& communicator,
      Verify depth = Verify::kHashes);

  const std::filesystem::path& folder() const { return folder_; }
  /// state.json.
  const std::string& state() const { return state_; }
  /// Whether one of the small files is there, and its content.
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }
  std::string file(const std::string& name) const;

  bool has_group(const std::string& group) const { return groups_.contains(group); }
  /// The tensors of "model", "optimizer"; throws where there are none.
  const TensorFiles& group(const std::string& group) const;

  /// Throws (checkpoint), all problems at once, naming file and tensor, where a tensor is missing
  /// or has another shape or type, or (kRefuse) where the groups named in `expected` hold tensors
  /// that are not.
  enum class Extra { kRefuse, kAllow };
  void check(std::span<const ExpectedTensor> expected, Extra extra = Extra::kRefuse) const;

  /// Elements [begin, begin + out.numel()) of a tensor, converted to out's floating type.
  void read(const std::string& group, const std::string& name, int64_t begin, const at::Tensor& out)
      const;
  /// Fills the data of a piece, cut in any way; the shape must be the tensor's.
  void read(const Piece& piece) const;
  /// The same of pieces such as those that were saved; checks shapes.
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

/// The newest committed checkpoint of `output_dir` that is whole, verified to the last byte. A
/// damaged one is passed over with a warning that says what of it is damaged. Nothing where there
/// is no checkpoint at all; where there are some and none is whole, an Error (checkpoint). Every
/// rank must call.
std::optional<Checkpoint> latest_checkpoint(
    const std::filesystem::path& output_dir, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
