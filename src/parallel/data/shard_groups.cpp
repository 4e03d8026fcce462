// Splits data-parallel ranks into sharding and replica groups.
#include "parallel/data/shard_groups.h"

#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {

ShardGroups make_shard_groups(ParallelGroups& axes, int shard_ranks, comm::Communicator* holders) {
  comm::Communicator& all = holders == nullptr ? axes.data_context() : *holders;
  if (shard_ranks == 0 || shard_ranks == all.size()) {
    return {&all, nullptr, &all};
  }
  if (shard_ranks < 0 || all.size() % shard_ranks != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "parallel.shard_ranks={} does not divide the {} ranks that hold the same parameters",
            shard_ranks,
            all.size()),
        "use a divisor, such as the number of ranks per node");
  }
  const int first = all.rank() / shard_ranks * shard_ranks;
  std::vector<int> sharing, same;
  for (int rank = first; rank < first + shard_ranks; ++rank) {
    sharing.push_back(rank);
  }
  for (int rank = all.rank() % shard_ranks; rank < all.size(); rank += shard_ranks) {
    same.push_back(rank);
  }
  comm::Communicator& shards = axes.split(all, sharing, "shards of " + all.name());
  return {&shards, &axes.split(all, same, "replicas of " + all.name()), &all};
}

}  // namespace lockstep::parallel
