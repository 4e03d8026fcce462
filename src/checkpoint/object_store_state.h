// Layout of checkpoints in an object store, in which objects cannot be renamed:
//
//   RUN/checkpoint-<step>/<token>.<sequence>/
//                         the files of a checkpoint; manifest.json, written last, is the commit
//   RUN/.lockstep/<number>-<token>.json
//                         a lease: the run, and the checkpoints that it found committed
//
// An object appears as a whole and is visible to every later reader. A checkpoint is therefore
// either complete or absent. No two rounds write to the same name. A lease is written twice: first
// to take the run, then with the list of committed checkpoints that were found. To determine the
// valid checkpoints, the highest lease with such a list is used: a checkpoint is valid if the run
// of this lease has written it or found it. Checkpoints that an earlier round commits after it was
// replaced are not valid.
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
  std::string manifest;  // content of manifest.json
  std::string name() const;
  objects::Location place(const objects::Location& run) const;
};

/// Content of a lease, an object in .lockstep/.
struct ObjectStoreLease {
  int64_t number = 0;
  std::string token{}, host{}, job{};
  std::string processes{};  // scope of the PID: the kernel and the PID namespace
  int64_t pid = 0;
  int round = 0, term = 0;
  int64_t beat = 0;  // increases while the run is alive
  bool released = false;
  /// ObjectStoreCheckpoint::name() of the committed checkpoints that this run found. nullopt until
  /// the listing is complete.
  std::optional<std::set<std::string>> inherited{};

  objects::Location place(const objects::Location& run) const;
  std::string text() const;
};

/// Content of a run's folder in an object store.
struct ObjectStoreState {
  std::vector<objects::Object> objects;            // all objects of the run
  std::vector<ObjectStoreCheckpoint> checkpoints;  // committed checkpoints, newest first
  std::vector<ObjectStoreLease> holds;             // highest number first
  /// Returns the valid checkpoints, newest first.
  std::vector<ObjectStoreCheckpoint> committed() const;
};
/// Committed checkpoints by name. Manifests never change, so each is read only once.
using KnownManifests = std::map<std::string, ObjectStoreCheckpoint>;
ObjectStoreState look_at(const objects::Location& run, KnownManifests& known);
/// Reads only the leases, highest number first.
std::vector<ObjectStoreLease> holds_of(const objects::Location& run);

/// Returns a local copy of a model. `location` is a model folder, a checkpoint-<step>, or a run, of
/// which the newest checkpoint is used. With `whole`, also downloads the optimizer's files. Throws
/// Error (data) if there is no model.
std::filesystem::path fetch_model(const std::string& location, bool whole = false);

}  // namespace lockstep::checkpoint
