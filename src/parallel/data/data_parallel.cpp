// Data parallelism engine: gathers and reductions of flat units.
#include "parallel/data/data_parallel.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "optim/gradient_norm.h"
#include "parallel/autograd/backward_hooks.h"

namespace lockstep::parallel {
namespace {

constexpr double kMegabyte = 1024.0 * 1024.0;  // same definition as in torch's DDP

std::unique_ptr<ShardFile> make_shard_file(const DataParallelOptions& options) {
  return options.zero_stage < 3 || options.parameter_folder.empty()
             ? nullptr
             : std::make_unique<ShardFile>(options.parameter_folder);
}

FlatOptions flat_options(
    comm::Communicator& group, const DataParallelOptions& options, ShardFile* file) {
  FlatOptions flat;
  flat.file = file;
  flat.zero_stage = options.zero_stage;
  flat.rank = group.rank();
  flat.ranks = group.size();
  flat.bucket_bytes = static_cast<int64_t>(options.bucket_megabytes * kMegabyte);
  flat.persistence_threshold = options.persistence_threshold;
  flat.alignment = options.alignment;
  flat.offload_parameters = options.offload_parameters;
  flat.gradient_type = options.gradient_type;
  flat.source = options.source;
  flat.agree = [&group, replicas = options.replicas](const Tensor& full) {
    if (replicas != nullptr) {  // sends rank 0's values to the first rank of every sharding group
      replicas->broadcast(full, 0).wait();
    }
    group.broadcast(full, 0).wait();
  };
  return flat;
}

}  // namespace

DataParallel::DataParallel(
    comm::Communicator& group,
    const std::vector<ParameterUnit>& units,
    const DataParallelOptions& options)
    : options_(options),
      file_(make_shard_file(options)),
      flats_(make_flat_units(units, flat_options(group, options, file_.get()))),
      gathers_(
          group, flats_, units, {options.prefetch_units, options.prefetch_elements}, file_.get()),
      reductions_(group, flats_.flats, reduction_options()) {
  for (const ParameterUnit& unit : units) {
    backward_reads_.push_back(unit.backward_reads_parameters);
  }
}

Tensor DataParallel::run_unit(
    size_t unit, const Tensor& x, const std::function<Tensor(const Tensor&)>& body) {
  return run_unit(
             unit,
             std::vector<Tensor>{x},
             [&](const std::vector<Tensor>& inputs) {
               return std::vector<Tensor>{body(inputs.front())};
             })
      .front();
}

std::vector<Tensor> DataParallel::run_unit(
    size_t unit,
    const std::vector<Tensor>& inputs,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body) {
  gathers_.enter(unit, Pass::kForward);
  if (options_.zero_stage < 3) {
    std::vector<Tensor> y = body(inputs);
    worked(Pass::kForward);
    return y;
  }
  const bool records = at::GradMode::is_enabled();
  std::vector<Tensor> y = body(
      records
          ? when_backward_reaches(inputs, [this, unit] { gathers_.leave(unit, Pass::kBackward); })
          : inputs);
  worked(Pass::kForward);
  const bool has_backward = records && std::any_of(y.begin(), y.end(), [](const Tensor& tensor) {
                              return tensor.defined() && tensor.requires_grad();
                            });
  // The last unit stays gathered, because the backward pass needs it first.
  if (!has_backward || unit + 1 < backward_reads_.size()) {
    gathers_.leave(unit, Pass::kForward);
  }
  if (has_backward && backward_reads_[unit]) {
    y = when_backward_reaches(
        std::move(y), [this, unit] { gathers_.enter(unit, Pass::kBackward); });
  }
  return y;
}

void DataParallel::worked(Pass pass) const {
  if (at_work_) {
    at_work_(pass);
  }
}

ReductionOptions DataParallel::reduction_options() const {
  ReductionOptions reduction;
  reduction.zero_stage = options_.zero_stage;
  reduction.find_unused_parameters = options_.find_unused_parameters;
  reduction.reduce_type = options_.reduce_type;
  reduction.replicas = options_.replicas;
  reduction.counts_squares = options_.counts_squares;
  reduction.share = options_.share_of_squares;
  reduction.written = [this] { worked(Pass::kBackward); };
  return reduction;
}

void DataParallel::end_micro_batch() {
  reductions_.end_micro_batch();
  gathers_.leave_all();
}

void DataParallel::finish() {
  reductions_.finish();
  gathers_.settle();
}

void DataParallel::parameters_changed() {
  gathers_.shards_changed();
  for (const FlatUnit& flat : flats_.flats) {
    for (const FlatUnit::Entry& entry : flat.entries) {
      torch::autograd::impl::bump_version(entry.parameter);
    }
  }
}

int64_t DataParallel::gradient_bytes() const {
  int64_t bytes = 0;
  for (const FlatUnit& flat : flats_.flats) {
    const bool has_whole = flat.gradient.defined();
    bytes += has_whole ? static_cast<int64_t>(flat.gradient.nbytes()) : 0;
    if (flat.shard_gradient.defined() &&
        !(has_whole && flat.shard_gradient.is_alias_of(flat.gradient))) {
      bytes += static_cast<int64_t>(flat.shard_gradient.nbytes());
    }
  }
  return bytes;
}

std::optional<std::string> DataParallel::first_non_finite() const {
  for (const FlatUnit& flat : flats_.flats) {
    const auto index = flat.trainable ? optim::first_non_finite(flat.shard_gradient) : std::nullopt;
    if (!index) {
      continue;
    }
    for (const optim::Segment& segment : flat.shard_layout()) {
      if (*index >= segment.offset && *index < segment.offset + segment.count) {
        return segment.parameter;
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::parallel
