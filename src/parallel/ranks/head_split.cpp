// Distributes attention heads over tensor ranks.
#include "parallel/ranks/head_split.h"

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {

HeadSplit split_heads(const model::ModelConfig& config, int rank, int ranks) {
  if (ranks > config.heads) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("parallel.tensor is {}, but the model has {} heads", ranks, config.heads),
        fmt::format("set parallel.tensor to at most {}", config.heads));
  }
  const int64_t queries = config.queries_per_kv_head();
  if (config.kv_heads >= ranks) {
    const mesh::Range range = mesh::split_evenly(config.kv_heads, ranks, rank);
    return {{range.begin * queries, range.end * queries}, range, 1, 0};
  }
  int64_t head = 0;
  while (mesh::split_evenly(ranks, config.kv_heads, head).end <= rank) {
    ++head;
  }
  const mesh::Range holders = mesh::split_evenly(ranks, config.kv_heads, head);
  const mesh::Range part = mesh::split_evenly(queries, holders.size(), rank - holders.begin);
  return {
      {head * queries + part.begin, head * queries + part.end},
      {head, head + 1},
      static_cast<int>(holders.size()),
      static_cast<int>(rank - holders.begin)};
}

}  // namespace lockstep::parallel
