// Converts the replicated job state to and from JSON.
#include "launch/agent/replicated_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_number.h"
#include "launch/workers/output.h"

namespace lockstep::launch {
namespace {

using nlohmann::json;

int count_at(const json& object, const char* key, int most = 1 << 30) {
  const auto value = integer_of(object.at(key));
  if (value < 0 || value > most) {
    throw Error(
        ErrorKind::kPeerLost, fmt::format("invalid replicated job state: {} is {}", key, value));
  }
  return static_cast<int>(value);
}

}  // namespace

json to_json(const HostPlace& place) {
  return {{"address", place.address}, {"port", place.port}};
}

HostPlace place_from_json(const json& object) {
  return {printable(object.at("address").get<std::string>()), count_at(object, "port", 65535)};
}

json to_json(const ReplicatedJobState& replicated_state) {
  json hosts = json::array();
  for (const HostPlace& host : replicated_state.hosts) {
    hosts.push_back(to_json(host));
  }
  return {
      {"job",
       {{"id", replicated_state.job.id},
        {"started", replicated_state.job.started},
        {"first_world_size", replicated_state.job.first_world_size}}},
      {"rounds", replicated_state.rounds},
      {"restarts", replicated_state.restarts.to_json()},
      {"progress", replicated_state.progress.to_json()},
      {"hosts", std::move(hosts)},
      {"heirs", replicated_state.standbys}};
}

ReplicatedJobState replicated_state_from_json(const json& object) try {
  ReplicatedJobState replicated_state;
  const json& job = object.at("job");
  replicated_state.job = {
      job.at("id").get<std::string>(),
      integer_of(job.at("started")),
      count_at(job, "first_world_size")};
  replicated_state.rounds = count_at(object, "rounds");
  replicated_state.restarts = Restarts::from_json(object.at("restarts"));
  replicated_state.progress = Progress::from_json(object.at("progress"));
  for (const json& host : object.at("hosts")) {
    replicated_state.hosts.push_back(place_from_json(host));
  }
  replicated_state.standbys = count_at(object, "heirs");
  if (replicated_state.hosts.empty()) {
    throw Error(ErrorKind::kPeerLost, "invalid replicated job state: it has no coordinator");
  }
  return replicated_state;
} catch (const json::exception& error) {
  throw Error(ErrorKind::kPeerLost, fmt::format("invalid replicated job state: {}", error.what()));
}

}  // namespace lockstep::launch
