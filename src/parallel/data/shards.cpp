#include "parallel/data/shards.h"

#include <utility>

#include <ATen/core/grad_mode.h>

namespace lockstep::parallel {

void add_shards(DataParallel& engine, comm::Communicator& group, OffloadedOptimizer& optimizer) {
  const at::NoGradGuard no_grad;
  bool is_sharded = false;
  for (const FlatUnit& flat : engine.flats()) {
    if (!flat.trainable) {
      continue;
    }
    is_sharded = is_sharded || !flat.replicated;
    ShardFile* file = engine.shard_file();
    const bool is_in_file = file != nullptr && file->holds(flat.shard);
    if (is_in_file) {
      file->start_load(flat.shard);
      file->finish_load(flat.shard);
    }
    optim::Shard shard;
    shard.name = flat.name;
    shard.parameter = flat.shard;
    if (flat.shard.scalar_type() == at::kFloat) {
      shard.master = flat.shard;
    } else if (optimizer.optimizer().wants_master(flat.shard.scalar_type())) {
      shard.master = flat.shard.to(at::kFloat);
    }
    shard.gradient = flat.shard_gradient;
    shard.decayed = flat.shard_decayed;
    shard.layout = flat.shard_layout();
    if (flat.shard.scalar_type() == at::kHalf) {
      shard.parameter = shard.master;
      optimizer.add(std::move(shard), flat.shard);
    } else {
      optimizer.add(std::move(shard));
    }
    if (is_in_file) {
      file->start_store(flat.shard);
      file->finish_store(flat.shard);
      optimizer.keep_in(*file, flat.shard);
    }
  }
  if (is_sharded) {
    optimizer.optimizer().set_sum_over_shards(
        [&group](at::Tensor& tensor) { group.all_reduce(tensor).wait(); });
  }
}

}  // namespace lockstep::parallel
