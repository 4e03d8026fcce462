// Reads a worker's rank and rendezvous from environment variables.
#include "launch/workers/read_identity.h"

#include <charconv>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

class IdentityReader {
 public:
  explicit IdentityReader(const Environment& environment) : environment_(environment) {}

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = environment_.find(name);
    return found == environment_.end() || found->second.empty() ? otherwise : found->second;
  }

  int number(const std::string& name, int least, std::optional<int> otherwise = std::nullopt) {
    const std::string value = text(name, "");
    if (value.empty()) {
      if (!otherwise) {
        problems_.push_back(name + " is not set");
      }
      return otherwise.value_or(least);
    }
    int number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code != std::errc() || end != value.data() + value.size() || number < least) {
      problems_.push_back(fmt::format("{}={} is not a number of at least {}", name, value, least));
      return least;
    }
    return number;
  }

  void problem(std::string text) { problems_.push_back(std::move(text)); }

  void finish() const {
    if (!problems_.empty()) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("the launcher's variables are incomplete: {}", fmt::join(problems_, "; ")),
          "start the job with `lockstep train --nproc N`, `lockstep launch` or torchrun; or unset "
          "RANK and WORLD_SIZE to run one rank");
    }
  }

 private:
  const Environment& environment_;
  std::vector<std::string> problems_;
};

}  // namespace

std::optional<WorkerIdentity> read_identity(const Environment& environment) {
  if (!environment.contains("RANK") && !environment.contains("WORLD_SIZE")) {
    return std::nullopt;
  }
  IdentityReader reader(environment);
  WorkerIdentity identity;
  identity.world_size = reader.number("WORLD_SIZE", 1);
  identity.rank = reader.number("RANK", 0);
  identity.local_rank = reader.number("LOCAL_RANK", 0, identity.rank);
  identity.local_world_size = reader.number("LOCAL_WORLD_SIZE", 1, identity.world_size);
  identity.group_rank = reader.number("GROUP_RANK", 0, 0);
  identity.restart_count = reader.number("TORCHELASTIC_RESTART_COUNT", 0, 0);
  identity.max_restarts = reader.number("TORCHELASTIC_MAX_RESTARTS", 0, 0);
  identity.run_id = reader.text("TORCHELASTIC_RUN_ID", "none");
  identity.round = reader.number("LOCKSTEP_ROUND", 0, identity.restart_count);
  identity.term = reader.number("LOCKSTEP_TERM", 0, 0);
  identity.job = reader.text("LOCKSTEP_JOB", "");
  identity.job_is_unique = !identity.job.empty();
  if (!identity.job_is_unique && identity.run_id != "none") {
    identity.job = identity.run_id;
  }
  identity.first_world_size = reader.number("LOCKSTEP_FIRST_WORLD_SIZE", 0, 0);
  identity.agent_store = reader.text("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  identity.error_file = reader.text("TORCHELASTIC_ERROR_FILE", "");
  if (identity.rank >= identity.world_size) {
    reader.problem(
        fmt::format("RANK={} is not below WORLD_SIZE={}", identity.rank, identity.world_size));
  }
  if (identity.world_size > 1) {
    identity.master_port = reader.number("MASTER_PORT", 1);
    identity.master_address = reader.text("MASTER_ADDR", "");
    if (identity.master_address.empty()) {
      reader.problem("MASTER_ADDR is not set");
    }
  }
  reader.finish();
  return identity;
}

}  // namespace lockstep::launch
