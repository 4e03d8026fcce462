#include "launch/agent/heritage.h"

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
    throw Error(ErrorKind::kPeerLost, fmt::format("a host says {} {}", key, value));
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

json to_json(const Heritage& heritage) {
  json hosts = json::array();
  for (const HostPlace& host : heritage.hosts) {
    hosts.push_back(to_json(host));
  }
  return {
      {"job",
       {{"id", heritage.job.id},
        {"started", heritage.job.started},
        {"first_world_size", heritage.job.first_world_size}}},
      {"rounds", heritage.rounds},
      {"restarts", heritage.restarts.to_json()},
      {"progress", heritage.progress.to_json()},
      {"hosts", std::move(hosts)},
      {"heirs", heritage.heirs}};
}

Heritage heritage_from_json(const json& object) try {
  Heritage heritage;
  const json& job = object.at("job");
  heritage.job = {
      job.at("id").get<std::string>(),
      integer_of(job.at("started")),
      count_at(job, "first_world_size")};
  heritage.rounds = count_at(object, "rounds");
  heritage.restarts = Restarts::from_json(object.at("restarts"));
  heritage.progress = Progress::from_json(object.at("progress"));
  for (const json& host : object.at("hosts")) {
    heritage.hosts.push_back(place_from_json(host));
  }
  heritage.heirs = count_at(object, "heirs");
  if (heritage.hosts.empty()) {
    throw Error(ErrorKind::kPeerLost, "a host says that nobody hosts the job");
  }
  return heritage;
} catch (const json::exception& error) {
  throw Error(ErrorKind::kPeerLost, fmt::format("a host tells the job wrongly: {}", error.what()));
}

}  // namespace lockstep::launch
