// Implements bucketed gradient all-reduce for arbitrary libtorch modules.
#include "library/distributed_data_parallel.h"

#include <set>
#include <string>
#include <utility>

#include <ATen/ops/full_like.h>
#include <torch/nn/module.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep {
namespace {

std::vector<parallel::ParameterUnit> units_of(const torch::nn::Module& module) {
  std::vector<parallel::ParameterUnit> units;
  std::set<const void*> seen;
  for (const auto& parameter : module.named_parameters()) {
    if (seen.insert(parameter.value().unsafeGetTensorImpl()).second) {  // skips shared parameters
      units.push_back({parameter.key(), {{parameter.key(), parameter.value()}}});
    }
  }
  if (units.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "the module has no parameters",
        "register its parameters and submodules in its constructor");
  }
  return units;
}

std::string description(const parallel::ParameterUnit& unit) {
  const at::Tensor& tensor = unit.parameters.front().tensor;
  return fmt::format(
      "{} {} [{}]{}",
      unit.name,
      c10::toString(tensor.scalar_type()),
      fmt::join(tensor.sizes(), ", "),
      tensor.requires_grad() ? "" : " frozen");
}

/// Throws if modules differ between ranks, which would deadlock collectives or reduce unrelated
/// gradients.
void check_that_ranks_agree(
    const std::vector<parallel::ParameterUnit>& units, comm::Communicator& ranks) {
  std::vector<std::string> lines;
  for (const parallel::ParameterUnit& unit : units) {
    lines.push_back(description(unit));
  }
  const auto all = comm::gather_strings(ranks, fmt::format("{}", fmt::join(lines, "\n")));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) {
      continue;
    }
    const auto line_at = [](const std::string& text, size_t at) {
      const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      return begin >= text.size() ? "nothing" : text.substr(begin, text.find('\n', begin) - begin);
    };
    size_t at = 0;
    while (at < all[0].size() && at < all[rank].size() && all[0][at] == all[rank][at]) {
      ++at;
    }
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "rank {} has the parameter {}, but rank 0 has {}",
            rank,
            line_at(all[rank], at),
            line_at(all[0], at)),
        "create the same module on every rank");
  }
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(
    std::shared_ptr<torch::nn::Module> module,
    comm::Communicator& ranks,
    const DistributedDataParallelOptions& options)
    : module_(std::move(module)),
      ranks_(ranks),
      scale_(
          options.gradient == DistributedDataParallelOptions::Gradient::kMeanOfRanks
              ? 1.0 / ranks.size()
              : 1.0) {
  const auto units = units_of(*module_);
  check_that_ranks_agree(units, ranks);
  parallel::DataParallelOptions engine;
  engine.bucket_megabytes = options.bucket_megabytes;
  engine.find_unused_parameters = options.find_unused_parameters;
  engine.reduce_type = options.reduce_type;
  engine_ = std::make_unique<parallel::DataParallel>(ranks, units, engine);
  broadcast_buffers();
}

void DistributedDataParallel::backward(const at::Tensor& loss, MicroBatch which) {
  if (!std::exchange(step_is_open_, true)) {
    for (parallel::FlatUnit& flat : engine_->flats()) {
      for (parallel::FlatUnit::Entry& entry : flat.entries) {
        entry.parameter.mutable_grad().reset();
      }
    }
    engine_->begin_step();
  }
  const bool last = which == MicroBatch::kLast;
  engine_->begin_micro_batch(last);
  // Scales the loss before the backward pass so that the sum over ranks is the mean.
  loss.backward(at::full_like(loss, scale_));
  engine_->end_micro_batch();
  if (!last) {
    return;
  }
  engine_->finish();
  step_is_open_ = false;
  for (parallel::FlatUnit& flat : engine_->flats()) {
    for (parallel::FlatUnit::Entry& entry : flat.entries) {
      if (flat.trainable) {
        entry.parameter.mutable_grad() =
            flat.shard_gradient.narrow(0, entry.offset, entry.count).view(entry.parameter.sizes());
      }
    }
  }
}

void DistributedDataParallel::broadcast_buffers() {
  for (const auto& buffer : module_->named_buffers()) {
    const at::Tensor dense = buffer.value().contiguous();
    ranks_.broadcast(dense, 0).wait();
    if (!dense.is_same(buffer.value())) {
      at::Tensor(buffer.value()).copy_(dense);
    }
  }
}

}  // namespace lockstep
