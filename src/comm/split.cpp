// Creates subgroups of a communicator.
#include "comm/split.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::comm {

Communicator split(
    Communicator& parent,
    const std::vector<int>& ranks,
    const std::string& name,
    const GroupOptions& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), parent.rank());
  if (mine == ranks.end()) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rank {} is not a member of the group {} that it creates", parent.rank(), name));
  }
  if (ranks.size() == 1) {
    return Communicator::alone();
  }
  // The first member distinguishes the groups of one split. The number of arrivals distinguishes
  // consecutive splits, since a split starts only after the previous one has completed.
  const Store& store = parent.process_group()->getStore();
  const std::string key = fmt::format("split/{}/{}", name, ranks.front());
  const auto size = static_cast<int64_t>(ranks.size());
  const int64_t number = (store->add(key + "/arrivals", 1) - 1) / size;
  const auto rank = static_cast<int>(mine - ranks.begin());
  GroupOptions own = options;
  own.world_ranks.clear();
  for (const int member : ranks) {
    own.world_ranks.push_back(parent.world_rank(member));
  }
  const Store place = with_prefix(fmt::format("{}/{}", key, number), store);
  return Communicator(join_group(place, rank, static_cast<int>(size), own), own, name);
}

}  // namespace lockstep::comm
