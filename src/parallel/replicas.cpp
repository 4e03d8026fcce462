// Compares hashes of replicated state.
#include "parallel/replicas.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/value_hash.h"

namespace lockstep::parallel {
namespace {

/// Values that every rank of a group holds.
struct Replica {
  const FlatUnit* flat;
  Tensor values;
};

std::string names_of(const FlatUnit& flat) {
  return flat.entries.size() == 1
             ? flat.entries.front().name
             : fmt::format("{} to {}", flat.entries.front().name, flat.entries.back().name);
}

/// Returns the world ranks whose hash differs from the majority's. Returns all ranks if there is no
/// majority.
std::vector<int> odd_ranks(const comm::Communicator& group, const std::vector<int64_t>& hashes) {
  std::map<int64_t, size_t> holders;
  for (const int64_t hash : hashes) {
    ++holders[hash];
  }
  std::vector<int> odd;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (2 * holders[hashes[rank]] <= hashes.size()) {
      odd.push_back(group.world_rank(static_cast<int>(rank)));
    }
  }
  return odd;
}

void compare(comm::Communicator& group, const std::vector<Replica>& replicas) {
  if (group.size() == 1 || replicas.empty()) {
    return;
  }
  std::vector<int64_t> mine;
  for (const Replica& replica : replicas) {
    mine.push_back(hash_of_values(replica.values));
  }
  const auto device = replicas.front().values.device();
  const Tensor own = at::tensor(mine, at::kLong).to(device);
  Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(all, own).wait();
  const Tensor hashes = all.cpu().t().contiguous();  // [replicas, ranks]
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto* row = hashes.const_data_ptr<int64_t>() + static_cast<int64_t>(i) * group.size();
    const std::vector<int64_t> held(row, row + group.size());
    const std::vector<int> odd = odd_ranks(group, held);
    if (!odd.empty()) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format(
              "the values of {}, which are replicated in group {}, differ on rank{} {}: memory, a "
              "processor or a link has corrupted data",
              names_of(*replicas[i].flat),
              group.name(),
              odd.size() == 1 ? "" : "s",
              fmt::join(odd, " or ")),
          "resume from the last checkpoint, which was compared before it was written, without that "
          "machine");
    }
  }
}

}  // namespace

namespace {

/// Replicated values of all engines with the same groups.
struct Compared {
  const ShardGroups* groups;
  std::vector<Replica> whole, shards;
};

void collect(DataParallel& engine, Compared& all) {
  engine.settle();
  for (const FlatUnit& flat : engine.flats()) {
    const bool is_here = flat.shard.defined() && flat.shard.storage().nbytes() > 0;
    if (is_here && flat.replicated) {
      all.whole.push_back({&flat, flat.shard});
    }
    if (is_here) {
      all.shards.push_back({&flat, flat.shard});
    }
  }
}

}  // namespace

void compare_replicas(std::span<ShardedModel> stages) {
  std::vector<Compared> all;  // indexed by the position of the engine in its stage
  for (const ShardedModel& stage : stages) {
    const std::vector<ShardedModel::Engine> engines = stage.engines();
    for (size_t i = 0; i < engines.size(); ++i) {
      if (all.size() <= i) {
        all.push_back({engines[i].groups, {}, {}});
      }
      collect(*engines[i].engine, all[i]);
    }
  }
  for (const Compared& each : all) {
    compare(*each.groups->shards, each.whole);
    if (each.groups->replicas != nullptr) {
      compare(*each.groups->replicas, each.shards);
    }
  }
}

}  // namespace lockstep::parallel
