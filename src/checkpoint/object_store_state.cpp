// Reads leases and committed checkpoints of an object store.
#include "checkpoint/object_store_state.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/text.h"
#include "objects/fetch.h"

namespace lockstep::checkpoint {
namespace {

using json = nlohmann::json;
using objects::Location;
using objects::Object;
using objects::Store;

constexpr std::string_view kHolds = ".lockstep";

/// Returns nullopt if the object is being written or removed, or if it is not a lease.
std::optional<ObjectStoreLease> read_hold(const Location& run, const Object& object) {
  if (object.size > kLongestJson) {
    return std::nullopt;
  }
  try {
    const std::string text = Store::of(run).read_text(object);
    if (text.empty()) {
      return std::nullopt;  // the object is being created; Azure makes such objects visible
    }
    const json read = parse_json(text, object.key, ErrorKind::kCheckpoint);
    ObjectStoreLease hold{
        read.at("number"),
        read.at("token"),
        read.at("host"),
        read.at("job"),
        read.at("processes"),
        read.at("pid"),
        read.at("round"),
        read.at("term"),
        read.at("beat"),
        read.at("released"),
        std::nullopt};
    if (const json& inherited = read.at("inherited"); !inherited.is_null()) {
      hold.inherited = inherited.get<std::set<std::string>>();
    }
    return hold;
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    if (!Store::of(run).find({run.scheme, run.bucket, object.key})) {
      return std::nullopt;
    }
    throw;
  }
}

std::vector<ObjectStoreLease> read_holds(const Location& run, const std::vector<Object>& objects) {
  std::vector<ObjectStoreLease> holds;
  for (const Object& object : objects) {
    if (auto hold = read_hold(run, object)) {
      holds.push_back(std::move(*hold));
    }
  }
  std::sort(holds.begin(), holds.end(), [](const ObjectStoreLease& a, const ObjectStoreLease& b) {
    return std::tuple(a.number, a.inherited.has_value(), a.token) >
           std::tuple(b.number, b.inherited.has_value(), b.token);
  });
  return holds;
}

/// Reads checkpoint-<step>/FOLDER/manifest.json. Returns nullopt if the object has another name,
/// was removed in the meantime, or is not a manifest.
std::optional<ObjectStoreCheckpoint> read_committed(
    const Location& run, const Object& object, KnownManifests& known) {
  const std::filesystem::path name = objects::name_below(run, object);
  const auto step = checkpoint_step(*name.begin());
  if (!step || name.filename() != kManifestName || std::distance(name.begin(), name.end()) != 3 ||
      object.size > kLongestJsonTable) {
    return std::nullopt;
  }
  if (const auto read = known.find(name.parent_path().string()); read != known.end()) {
    return read->second;
  }
  try {
    const std::string text = Store::of(run).read_text(object);
    const ObjectStoreCheckpoint committed{
        *step,
        parse_manifest(text, run.below(name.string()).text()).sequence,
        name.parent_path().filename().string(),
        text};
    known.emplace(committed.name(), committed);
    return committed;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kCheckpoint ||
        !Store::of(run).find({run.scheme, run.bucket, object.key})) {
      return std::nullopt;
    }
    throw;
  }
}

}  // namespace

std::string ObjectStoreCheckpoint::name() const {
  return fmt::format("checkpoint-{}/{}", step, folder);
}

Location ObjectStoreCheckpoint::place(const Location& run) const {
  return run.below(name());
}

Location ObjectStoreLease::place(const Location& run) const {
  return run.below(fmt::format("{}/{:08}-{}.json", kHolds, number, token));
}

std::string ObjectStoreLease::text() const {
  const json found = inherited ? json(*inherited) : json(nullptr);
  return nlohmann::ordered_json{
             {"number", number},
             {"token", token},
             {"host", host},
             {"pid", pid},
             {"job", job},
             {"processes", processes},
             {"round", round},
             {"term", term},
             {"beat", beat},
             {"released", released},
             {"inherited", found}}
             .dump(1) +
         "\n";
}

std::vector<ObjectStoreCheckpoint> ObjectStoreState::committed() const {
  std::vector<ObjectStoreCheckpoint> counted = checkpoints;
  const auto under = std::find_if(holds.begin(), holds.end(), [](const ObjectStoreLease& hold) {
    return hold.inherited.has_value();
  });
  if (under != holds.end()) {
    std::erase_if(counted, [&](const ObjectStoreCheckpoint& each) {
      return !under->inherited->contains(each.name()) &&
             each.folder.substr(0, each.folder.rfind('.')) != under->token;
    });
  }
  return counted;
}

ObjectStoreState look_at(const Location& run, KnownManifests& known) {
  ObjectStoreState state;
  state.objects = Store::of(run).list(run);
  std::vector<Object> holds;
  for (const Object& object : state.objects) {
    if (object.key.starts_with(run.below(kHolds).key + "/")) {
      holds.push_back(object);
    } else if (auto committed = read_committed(run, object, known)) {
      state.checkpoints.push_back(std::move(*committed));
    }
  }
  state.holds = read_holds(run, holds);
  std::sort(state.checkpoints.begin(), state.checkpoints.end(), [](const auto& a, const auto& b) {
    return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step);
  });
  return state;
}

std::vector<ObjectStoreLease> holds_of(const Location& run) {
  return read_holds(run, Store::of(run).list(run.below(kHolds)));
}

std::filesystem::path fetch_model(const std::string& text, bool whole) {
  const auto wanted = [&](std::string_view key) {
    return whole || std::filesystem::path(key).filename().string().rfind("optimizer", 0) != 0;
  };
  const Location location = objects::parse_location(text);
  Store& store = Store::of(location);
  if (!store.find(location.below("config.json")) &&
      !store.find(location.below("adapter_config.json"))) {
    // The location is that of a run or of one of its checkpoints.
    const size_t slash = location.key.rfind('/');
    const auto step = checkpoint_step(location.key);
    Location run = location;
    run.key = step ? location.key.substr(0, slash == std::string::npos ? 0 : slash) : location.key;
    KnownManifests read;
    for (const ObjectStoreCheckpoint& each : look_at(run, read).committed()) {
      if (!step || each.step == *step) {
        return objects::fetch_folder(each.place(run), wanted);
      }
    }
  }
  return objects::fetch_folder(location, wanted);
}

}  // namespace lockstep::checkpoint
