// Checkpoints in an object store, where nothing can be renamed:
//
//   RUN/checkpoint-<step>/<token>.<sequence>/   the files of a checkpoint; manifest.json, which is
//                                               written last, is the commit
//   RUN/.lockstep/<number>-<token>.json         who has the run, and what it found committed
//
// An object appears whole, and what was written is seen by all who read from then on: so a
// checkpoint is whole or not there. No two rounds write to one name. A hold is written twice: to
// take the run, and with what was found then. A checkpoint counts if the run of the highest hold
// that tells what it found wrote it, or found it. What an earlier round commits after it was taken
// over from counts for nobody.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "objects/store.h"

namespace lockstep::checkpoint {

struct ObjectStoreCheckpoint {
  int64_t step = 0, sequence = 0;
  std::string folder;    // <token>.<sequence>
  std::string manifest;  // its text
  std::string name() const;
  objects::Location place(const objects::Location& run) const;
};

/// What stands in an object of .lockstep/.
struct ObjectStoreLease {
  int64_t number = 0;
  std::string token{}, host{}, job{};
  std::string processes{};  // where its number tells a process: a kernel, a namespace
  int64_t pid = 0;
  int round = 0, term = 0;
  int64_t beat = 0;  // grows as long as the run lives
  bool released = false;
  /// ObjectStoreCheckpoint::name() of what it found committed; nothing while it looks.
  std::optional<std::set<std::string>> inherited{};

  objects::Location place(const objects::Location& run) const;
  std::string text() const;
};

/// A run as it is in its store.
struct ObjectStoreState {
  std::vector<objects::Object> objects;            // all of it
  std::vector<ObjectStoreCheckpoint> checkpoints;  // that were committed, the newest first
  std::vector<ObjectStoreLease> holds;             // the highest first
  /// Those that count.
  std::vector<ObjectStoreCheckpoint> committed() const;
};
/// Committed checkpoints by name: a manifest that was read is not read again, for none is written
/// anew.
using KnownManifests = std::map<std::string, ObjectStoreCheckpoint>;
ObjectStoreState look_at(const objects::Location& run, KnownManifests& known);
/// The holds alone, the highest first.
std::vector<ObjectStoreLease> holds_of(const objects::Location& run);

/// The local copy of a model: of a folder, of a checkpoint-<step>, or of the newest checkpoint of a
/// run. With the optimizer's files where `whole`. Error (data) where there is none.
std::filesystem::path fetch_model(const std::string& location, bool whole = false);

}  // namespace lockstep::checkpoint
