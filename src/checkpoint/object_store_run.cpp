// Implements runs whose output_dir is in an object store: leases, upload, download and rotation.
#include "checkpoint/object_store_run.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/replace_file.h"
#include "checkpoint/on_all_ranks.h"
#include "objects/fetch.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using objects::Location;
using objects::Store;

constexpr auto kBeat = std::chrono::seconds(10);
constexpr auto kNoLife = std::chrono::seconds(30);
constexpr int kFences = 6;

/// Returns true for files of checkpoints and leases.
bool is_apart(const fs::path& name) {
  const std::string first = name.begin()->string();
  return first.starts_with(".") || first.starts_with("checkpoint-");
}

bool has_ended(const ObjectStoreLease& hold) {
  return hold.released || is_dead(hold.processes, hold.pid);
}

Error in_use(const Location& place, const ObjectStoreLease& hold) {
  return Error(
      ErrorKind::kEnvironment,
      fmt::format(
          "{} is in use by another run: process {} on {}{}",
          place.text(),
          hold.pid,
          hold.host,
          hold.job.empty() ? "" : fmt::format(", job {}, round {}", hold.job, hold.round)),
      "wait for that run to end, stop it, or use another output_dir for this one");
}

/// Returns true if `folder` is a copy of this checkpoint.
bool is_copy_of(const fs::path& folder, const ObjectStoreCheckpoint& stored) {
  try {
    const Manifest there = parse_manifest(stored.manifest, stored.name());
    const Manifest here = read_manifest(folder);
    const auto same = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.size == b.second.size &&
             a.second.chunks == b.second.chunks;
    };
    return std::equal(
        here.files.begin(), here.files.end(), there.files.begin(), there.files.end(), same);
  } catch (const Error&) {
    return false;
  }
}

/// Uploads a file in chunks. Chunks of a checkpoint are compared with the manifest.
void upload_file(
    const fs::path& path,
    const Location& to,
    const FileRecord* record,
    ChunkHash hash = ChunkHash::kPages) {
  const File file(path, File::Mode::kRead);
  const uint64_t size = record != nullptr ? record->size : file.size();
  std::vector<std::byte> buffer;
  Store::of(to).write(to, [&](objects::Upload& upload) {
    for (uint64_t at = 0; at < size; at += kChunkBytes) {
      buffer.resize(std::min(kChunkBytes, size - at));
      file.read_at(at, buffer);
      if (record != nullptr &&
          chunk_hash(hash, buffer, at) != record->chunks.at(at / kChunkBytes)) {
        throw Error(
            ErrorKind::kCheckpoint,
            fmt::format("{} differs from the saved data from byte {} on", path.string(), at),
            "the disk or memory may be damaged; set XDG_CACHE_HOME to a folder on another disk");
      }
      upload.append(buffer);
    }
  });
}

int64_t time_of(const fs::path& path) {
  std::error_code ignored;
  return fs::last_write_time(path, ignored).time_since_epoch().count();
}

}  // namespace

ObjectStoreRun::ObjectStoreRun(Location place, fs::path work)
    : place_(std::move(place)),
      work_(std::move(work)) {}

std::unique_ptr<ObjectStoreRun> ObjectStoreRun::take(
    const Location& place,
    const fs::path& work,
    const RunIdentity& run,
    comm::Communicator& communicator) {
  std::unique_ptr<ObjectStoreRun> stored(new ObjectStoreRun(place, work));
  on_all_ranks(communicator, ErrorKind::kEnvironment, [&] {
    if (communicator.rank() == 0) {
      stored->claim(run);
    }
  });
  return stored;
}

void ObjectStoreRun::claim(const RunIdentity& run) {
  hold_.token = run_token(run);
  hold_.host = own_host();
  hold_.job = run.job;
  hold_.processes = own_processes();
  hold_.pid = ::getpid();
  hold_.round = run.round;
  hold_.term = run.term;
  std::minstd_rand random{std::random_device{}()};
  for (int i = 0; i < kFences; ++i) {
    const std::vector<ObjectStoreLease> before = holds_of(place_);
    if (!before.empty() && !has_ended(before.front()) && !is_given_up(before.front(), run)) {
      continue;  // the other run has ended since then, or a third run has the lease
    }
    hold_.number = before.empty() ? 1 : before.front().number + 1;
    if (const auto found = try_to_take()) {
      remove_strange_copies(found->committed());
      fetch_files(*found);
      beating_ = std::thread([this] { beat(); });
      return;
    }
    // Another run that tries at the same time also retries. Because of the random delay, one of
    // them is first.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2000));
  }
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format("another run is taking the lease of {} at the same time", place_.text()),
      "stop one of the two runs and start the other again");
}

/// Tries to take the lease with the number in hold_. If another run tries at the same time, returns
/// nullopt and leaves no trace.
std::optional<ObjectStoreState> ObjectStoreRun::try_to_take() {
  Store& store = Store::of(place_);
  hold_.inherited.reset();
  store.write(hold_.place(place_), hold_.text());
  // From here on, the previous owner cannot commit a checkpoint, and all its commits are visible.
  ObjectStoreState found = look_at(place_, known_);
  const bool is_alone =
      std::none_of(found.holds.begin(), found.holds.end(), [&](const auto& other) {
        return other.token != hold_.token && other.number >= hold_.number;
      });
  if (!is_alone) {
    store.remove(hold_.place(place_));
    return std::nullopt;
  }
  hold_.inherited.emplace();
  for (const ObjectStoreCheckpoint& each : found.committed()) {
    hold_.inherited->insert(each.name());
    sequence_ = std::max(sequence_, each.sequence);
  }
  store.write(hold_.place(place_), hold_.text());
  for (const ObjectStoreLease& other : found.holds) {
    if (other.number < hold_.number) {
      store.remove(other.place(place_));
    }
  }
  return found;
}

/// Returns true if the lease may be taken over although its run has not ended. This is the case if
/// this run is a later round of the same job, or if the other run no longer renews the lease.
/// Throws Error if the other run is alive.
bool ObjectStoreRun::is_given_up(const ObjectStoreLease& other, const RunIdentity& run) const {
  if (is_later_round(run, other.job, other.term, other.round)) {
    log_warning(
        "process {} on {} still holds {} for round {} of this job; round {} takes over",
        other.pid,
        other.host,
        place_.text(),
        other.round,
        run.round);
    return true;
  }
  log_info(
      "process {} on {} has the lease of {}; waiting to see whether it renews the lease",
      other.pid,
      other.host,
      place_.text());
  const auto deadline = std::chrono::steady_clock::now() + kNoLife;
  while (std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const std::vector<ObjectStoreLease> now = holds_of(place_);
    if (now.empty() || has_ended(now.front()) || now.front().token != other.token) {
      return false;
    }
    if (now.front().beat != other.beat) {
      throw in_use(place_, now.front());
    }
  }
  log_warning("the lease was not renewed; this run takes {}", place_.text());
  return true;
}

/// Downloads the run's small files from the store. They may be newer than its checkpoints if the
/// run was killed.
void ObjectStoreRun::fetch_files(const ObjectStoreState& state) {
  std::error_code ignored;
  std::vector<fs::path> going;
  for (const fs::directory_entry& entry : fs::directory_iterator(work_, ignored)) {
    if (!is_apart(entry.path().filename())) {
      going.push_back(entry.path());
    }
  }
  for (const fs::path& path : going) {
    fs::remove_all(path, ignored);
  }
  for (const objects::Object& object : state.objects) {
    const std::string name = objects::name_below(place_, object);
    if (is_apart(name) || name.ends_with(".safetensors")) {
      continue;
    }
    create_folders((work_ / name).parent_path());
    replace_file(work_ / name, [&](File& file) { Store::of(place_).read_file(object, file); });
    published_[name] = {object.size, time_of(work_ / name)};
  }
}

void ObjectStoreRun::remove_strange_copies(const std::vector<ObjectStoreCheckpoint>& committed) {
  for (const ListedCheckpoint& listed : list_checkpoints(work_)) {
    const bool known = std::any_of(committed.begin(), committed.end(), [&](const auto& stored) {
      return stored.step == listed.step && is_copy_of(listed.folder, stored);
    });
    if (!known) {
      system_disk().remove(listed.folder);
    }
  }
}

void ObjectStoreRun::beat() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kBeat, [&] { return is_over_; })) {
    ++hold_.beat;
    const ObjectStoreLease hold = hold_;
    lock.unlock();
    try {
      if (Store::of(place_).find(hold.place(place_))) {  // the run that took the lease removes it
        Store::of(place_).write(hold.place(place_), hold.text());
      }
    } catch (const Error& error) {
      log_debug("lease not renewed: {}", error.message());
    }
    lock.lock();
  }
}

ObjectStoreRun::~ObjectStoreRun() {
  if (!beating_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  beating_.join();
  try {
    if (Store::of(place_).find(hold_.place(place_))) {
      check();
      publish_files();
      hold_.released = true;
      Store::of(place_).write(hold_.place(place_), hold_.text());
    }
  } catch (const std::exception& error) {
    log_warning("lease of {} not released: {}", place_.text(), error.what());
  }
}

void ObjectStoreRun::check() const {
  const std::vector<ObjectStoreLease> holds = holds_of(place_);
  if (!holds.empty() && holds.front().number > hold_.number) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format(
            "the lease of {} was taken by process {} on {}",
            place_.text(),
            holds.front().pid,
            holds.front().host),
        "another run took over while this one was not responding; stop this run");
  }
}

void ObjectStoreRun::remove_leftovers() {
  const ObjectStoreState state = look_at(place_, known_);
  check();  // after the listing, so that the listing cannot contain files of a successor
  std::set<std::string> counted, going;
  for (const ObjectStoreCheckpoint& each : state.committed()) {
    counted.insert(each.name());
  }
  for (const objects::Object& object : state.objects) {
    const fs::path name = objects::name_below(place_, object);
    if (checkpoint_step(*name.begin()) && std::distance(name.begin(), name.end()) > 2) {
      const std::string folder = (*name.begin() / *std::next(name.begin())).string();
      if (!counted.contains(folder)) {
        going.insert(folder);
      }
    }
  }
  for (const std::string& name : going) {
    Store::of(place_).remove_below(place_.below(name));
  }
}

void ObjectStoreRun::publish(const fs::path& folder, comm::Communicator& communicator) {
  const int64_t step = checkpoint_step(folder).value();
  const Manifest manifest = read_manifest(folder);
  std::string name;
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    if (communicator.rank() == 0) {
      remove_leftovers();
      name = fmt::format("{}.{}", hold_.token, ++sequence_);
    }
  });
  name = comm::broadcast_string(communicator, name);
  const Location files = place_.below(folder.filename().string()).below(name);
  in_context(fmt::format("bringing {} to {}", folder.filename().string(), place_.text()), [&] {
    on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
      int number = 0;
      for (const auto& [file, record] : manifest.files) {
        if (number++ % communicator.size() == communicator.rank()) {
          upload_file(folder / file, files.below(file), &record, manifest.hash);
        }
      }
    });
    on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
      if (communicator.rank() == 0) {
        commit(step, name, manifest);
        publish_files();
      }
    });
  });
}

void ObjectStoreRun::commit(int64_t step, const std::string& name, Manifest manifest) {
  manifest.sequence = sequence_;
  check();
  Store::of(place_).write(
      ObjectStoreCheckpoint{step, sequence_, name, ""}.place(place_).below(kManifestName),
      manifest_json(manifest));
  const ObjectStoreState state = look_at(place_, known_);
  // If the lease is lost, the new checkpoint may be invalid, and older ones must not be removed.
  check();
  for (const ObjectStoreCheckpoint& each : state.committed()) {
    if (each.step == step && each.folder != name) {
      remove(each);
    }
  }
}

void ObjectStoreRun::remove(const ObjectStoreCheckpoint& stored) {
  const Location going = stored.place(place_);
  Store::of(place_).remove(
      going.below(kManifestName));  // removed first, so that a partial checkpoint is never valid
  Store::of(place_).remove_below(going);
  const Location step = place_.below(fmt::format("checkpoint-{}", stored.step));
  if (Store::of(place_).list(step).empty()) {
    Store::of(place_).remove_below(step);  // some stores represent an empty folder by an object
  }
}

void ObjectStoreRun::rotate(std::optional<int64_t> limit, std::span<const int64_t> keep_steps) {
  std::vector<fs::path> keep;
  for (const int64_t step : keep_steps) {
    keep.push_back(checkpoint_folder(work_, step));
  }
  rotate_checkpoints(work_, 1, keep);
  if (!limit) {
    return;
  }
  try {
    const ObjectStoreState state = look_at(place_, known_);
    check();
    std::map<std::string, uint64_t> sizes;
    for (const objects::Object& object : state.objects) {
      sizes[object.key] = object.size;
    }
    const auto committed = state.committed();
    const auto is_kept = [&](const ObjectStoreCheckpoint& each) {
      return std::ranges::find(keep_steps, each.step) != keep_steps.end();
    };
    Rotation rotation(*limit, std::ranges::count_if(committed, is_kept));
    for (const ObjectStoreCheckpoint& each : committed) {
      const Location files = each.place(place_);
      const Manifest manifest = parse_manifest(each.manifest, files.text());
      const bool whole =
          std::all_of(manifest.files.begin(), manifest.files.end(), [&](const auto& file) {
            const auto found = sizes.find(files.below(file.first).key);
            return found != sizes.end() && found->second == file.second.size;
          });
      if (rotation.removes(whole, is_kept(each))) {
        remove(each);
      }
    }
  } catch (const Error& error) {
    log_warning("old checkpoints in {} not removed: {}", place_.text(), error.message());
  }
}

std::vector<std::string> ObjectStoreRun::names() {
  std::set<std::string> names;
  const ObjectStoreState state = look_at(place_, known_);
  for (const objects::Object& object : state.objects) {
    const std::string name = fs::path(objects::name_below(place_, object)).begin()->string();
    if (!checkpoint_step(name)) {
      names.insert(name);
    }
  }
  for (const ObjectStoreCheckpoint& each : state.committed()) {
    names.insert(checkpoint_folder({}, each.step).string());
  }
  return {names.begin(), names.end()};
}

void ObjectStoreRun::remove_files(std::span<const std::string> names) {
  for (const ObjectStoreCheckpoint& each : look_at(place_, known_).committed()) {
    if (std::ranges::find(names, fmt::format("checkpoint-{}", each.step)) != names.end()) {
      remove(each);
    }
  }
  for (const std::string& name : names) {
    Store::of(place_).remove(place_.below(name));
    if (!Store::of(place_).list(place_.below(name)).empty()) {
      Store::of(place_).remove_below(place_.below(name));
    }
    system_disk().remove(work_ / name);
    std::erase_if(
        published_, [&](const auto& file) { return *fs::path(file.first).begin() == name; });
  }
}

void ObjectStoreRun::publish_files() {
  std::vector<std::string> names;
  std::error_code ignored;  // a running job may delete files that it no longer needs
  for (fs::recursive_directory_iterator at(work_, ignored), end; at != end; at.increment(ignored)) {
    const fs::path name = at->path().lexically_relative(work_);
    if (fs::is_regular_file(at->symlink_status(ignored)) && !is_apart(name)) {
      names.push_back(name.string());
    }
  }
  // Indexes are last, so that the files that they name already exist.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.ends_with(".index.json"), a) < std::pair(b.ends_with(".index.json"), b);
  });
  for (const std::string& name : names) {
    const std::pair<uint64_t, int64_t> now{
        fs::file_size(work_ / name, ignored), time_of(work_ / name)};
    if (published_[name] != now && fs::exists(work_ / name, ignored)) {
      upload_file(work_ / name, place_.below(name), nullptr);
      published_[name] = now;
    }
  }
}

std::vector<ObjectStoreCheckpoint> ObjectStoreRun::agree_on_committed(
    comm::Communicator& communicator) {
  nlohmann::json all = nlohmann::json::array();
  on_all_ranks(communicator, ErrorKind::kCheckpoint, [&] {
    if (communicator.rank() == 0) {
      for (const ObjectStoreCheckpoint& each : look_at(place_, known_).committed()) {
        all.push_back({each.step, each.sequence, each.folder, each.manifest});
      }
    }
  });
  std::vector<ObjectStoreCheckpoint> committed;
  for (const auto& each : nlohmann::json::parse(comm::broadcast_string(communicator, all.dump()))) {
    committed.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
  }
  return committed;
}

fs::path ObjectStoreRun::bring(
    const ObjectStoreCheckpoint& stored, comm::Communicator& communicator) {
  const fs::path folder = checkpoint_folder(work_, stored.step);
  std::string here;
  on_all_ranks(communicator, ErrorKind::kEnvironment, [&] {
    if (communicator.rank() == 0 && is_copy_of(folder, stored)) {
      here = "yes";
    } else if (communicator.rank() == 0) {
      system_disk().remove(folder);
      create_folders(folder);
    }
  });
  if (!comm::broadcast_string(communicator, here).empty()) {
    return folder;
  }
  const Location files = stored.place(place_);
  const Manifest manifest = parse_manifest(stored.manifest, files.text());
  on_all_ranks(communicator, ErrorKind::kEnvironment, [&] {
    int number = 0;
    for (const auto& [name, record] : manifest.files) {
      if (number++ % communicator.size() == communicator.rank()) {
        const auto object = Store::of(place_).find(files.below(name));
        if (object) {  // missing files are reported by the verification
          objects::fetch_file(*object, files.below(name), folder / name);
        }
      }
    }
  });
  on_all_ranks(communicator, ErrorKind::kEnvironment, [&] {
    if (communicator.rank() == 0) {
      write_file_atomically(folder / kManifestName, stored.manifest);
    }
  });
  return folder;
}

std::optional<Checkpoint> ObjectStoreRun::latest(comm::Communicator& communicator) {
  const std::vector<ObjectStoreCheckpoint> committed = agree_on_committed(communicator);
  for (const ObjectStoreCheckpoint& stored : committed) {
    try {
      return Checkpoint::open(bring(stored, communicator), communicator);
    } catch (const Error& error) {  // the same error on every rank
      if (error.kind() != ErrorKind::kCheckpoint) {
        throw;
      }
      if (communicator.rank() == 0) {
        log_warning("skipped {}: {}", stored.place(place_).text(), error.message());
      }
    }
  }
  if (!committed.empty()) {
    throw Error(
        ErrorKind::kCheckpoint,
        fmt::format("{} has {} checkpoints, but none is complete", place_.text(), committed.size()),
        "train from the start without resume_from_checkpoint, or copy a complete checkpoint there");
  }
  return std::nullopt;
}

std::optional<fs::path> ObjectStoreRun::fetch(int64_t step, comm::Communicator& communicator) {
  for (const ObjectStoreCheckpoint& stored : agree_on_committed(communicator)) {
    if (stored.step == step) {
      return bring(stored, communicator);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
