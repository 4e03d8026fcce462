// Checkpoints in an object store, which cannot rename:
//
//   RUN/checkpoint-<step>/<token>.<sequence>/   the files of a checkpoint; manifest.json, written last, is the commit
//   RUN/.lockstep/<number>-<token>.json         a lease: the run, and the checkpoints that it found committed
//
// An object appears whole, and every later reader sees it, so a checkpoint is complete or absent. No two rounds write to one name. A
// lease is written twice: to take the run, and with what was found then. A checkpoint is valid if the run of the highest lease with
// such a list wrote it or found it. What an earlier round commits after it was replaced is invalid.
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
  std::string manifest;  // its content
  std::string name() const;
  objects::Location place(const objects::Location& run) const;
};

/// Content of an object in .lockstep/.
struct ObjectStoreLease {
  int64_t number = 0;
  std::string token{}, host{}, job{};
  std::string processes{};  // scope of the process number: a kernel and a PID namespace
  int64_t pid = 0;
  int round = 0, term = 0;
  int64_t beat = 0;  // increases while the run is alive
  bool released = false;
  /// ObjectStoreCheckpoint::name() of the checkpoints that it found committed; nullopt while it
  /// looks.
  std::optional<std::set<std::string>> inherited{};

  objects::Location place(const objects::Location& run) const;
  std::string text() const;
};

/// A run as it is in its store.
struct ObjectStoreState {
  std::vector<objects::Object> objects;            // all of it
  std::vector<ObjectStoreCheckpoint> checkpoints;  // that were committed, the newest first
  std::vector<ObjectStoreLease> holds;             // the highest first
  /// The valid checkpoints.
  std::vector<ObjectStoreCheckpoint> committed() const;
};
/// Committed checkpoints by name. Manifests are immutable, so each is read once.
using KnownManifests = std::map<std::string, ObjectStoreCheckpoint>;
ObjectStoreState look_at(const objects::Location& run, KnownManifests& known);
/// Reads only the leases, highest first.
std::vector<ObjectStoreLease> holds_of(const objects::Location& run);

/// Returns a local copy of a model: of a folder, a checkpoint-<step>, or the newest checkpoint of a
/// run. `whole` includes the optimizer's files. Throws Error (data) if there is none.
std::filesystem::path fetch_model(const std::string& location, bool whole = false);

}  // namespace lockstep::checkpoint
