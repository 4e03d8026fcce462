// Adds the shards of a data-parallel engine to an optimizer.
#include "parallel/data/shards.h"

#include <utility>

#include <ATen/core/grad_mode.h>

namespace lockstep::parallel {

namespace {

/// Returns the segments of a shard with their positions in the whole parameter and their weights in
/// sums over the ranks of the shards (`sums` ranks) and of the tensor group.
std::vector<optim::Segment> layout_of(
    const FlatUnit& flat, int64_t sums, const PartsOfParameters& parts) {
  std::vector<optim::Segment> layout = flat.shard_layout();
  for (optim::Segment& segment : layout) {
    segment.share = flat.replicated ? 1.0 / static_cast<double>(sums) : 1.0;
    if (parts.group != nullptr) {
      ShardedParameter part = parts.part_of(segment.parameter, segment.shape);
      segment.share /= part.cut.copies;
      segment.whole_shape = std::move(part.shape);
      segment.cut = std::move(part.cut);
    }
  }
  return layout;
}

}  // namespace

void add_shards(
    DataParallel& engine,
    comm::Communicator& group,
    OffloadedOptimizer& optimizer,
    const PartsOfParameters& parts) {
  const at::NoGradGuard no_grad;
  bool is_sharded = false;
  for (const FlatUnit& flat : engine.flats()) {
    is_sharded = is_sharded || (flat.trainable && !flat.replicated);
  }
  for (const FlatUnit& flat : engine.flats()) {
    if (!flat.trainable) {
      continue;
    }
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
    } else if (
        optimizer.optimizer().wants_master(flat.shard.scalar_type()) &&
        (is_in_file || !flat.shard.is_cpu() || flat.shard.scalar_type() != at::kBFloat16)) {
      shard.master = flat.shard.to(at::kFloat);
    }
    shard.gradient = flat.shard_gradient;
    shard.layout = layout_of(flat, is_sharded ? group.size() : 1, parts);
    if (flat.shard.scalar_type() == at::kHalf || flat.shard.scalar_type() == at::kDouble) {
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
  if (is_sharded || parts.group != nullptr) {
    optimizer.optimizer().set_reduce_over_shards(
        [shards = is_sharded ? &group : nullptr, parts = parts.group](
            at::Tensor& tensor, optim::ShardReduction reduction) {
          const bool is_sum = reduction == optim::ShardReduction::kSum;
          for (comm::Communicator* ranks : {shards, parts}) {
            if (ranks != nullptr) {
              ranks->all_reduce(tensor, is_sum ? comm::Reduce::kSum : comm::Reduce::kMax).wait();
            }
          }
        });
  }
}

}  // namespace lockstep::parallel
