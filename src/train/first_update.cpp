// Detects a first update that is lost to rounding.
#include "train/first_update.h"

#include <set>
#include <string>

#include <ATen/ops/full.h>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "monitor/monitor.h"
#include "parallel/value_hash.h"

namespace lockstep::train {
namespace {

std::set<std::string> trained_names(optim::Optimizer& optimizer) {
  std::set<std::string> names;
  for (int64_t index = 0; index < optimizer.size(); ++index) {
    const optim::Shard& shard = optimizer.shard(index);
    if (shard.layout.empty()) {
      names.insert(shard.name);
    }
    for (const optim::Segment& segment : shard.layout) {
      names.insert(segment.parameter);
    }
  }
  return names;
}

/// Returns the hashes of this rank's trained weights and their float32 master copies.
std::vector<int64_t> hashes_of(parallel::ParallelModel& model) {
  const std::set<std::string> trained = trained_names(model.optimizer());
  std::vector<int64_t> hashes;
  model.visit_state([&](const parallel::StateSlice& slice) {
    const bool is_weight = slice.file_group == "model" ? trained.contains(slice.name)
                                                       : slice.name.starts_with("master.");
    if (is_weight && slice.data.numel() > 0) {
      hashes.push_back(parallel::hash_of_values(slice.data.contiguous()));
    }
  });
  return hashes;
}

}  // namespace

void FirstUpdate::begin(Job& job, double learning_rate) {
  // State in files would be read and written once more.
  is_done_ = is_done_ || job.model->offloaded_optimizer().uses_files();
  if (!is_done_ && learning_rate > 0) {
    before_ = hashes_of(*job.model);
  }
}

void FirstUpdate::end(
    Job& job, const parallel::StepResult& result, double learning_rate, RankContext& rank_context) {
  if (!before_ || result.overflowed) {
    before_.reset();
    return;
  }
  at::Tensor has_changed =
      at::full({1}, *before_ == hashes_of(*job.model) ? 0.0 : 1.0, at::kDouble);
  before_.reset();
  is_done_ = true;
  rank_context.communicator.all_reduce(has_changed, comm::Reduce::kMax).wait();
  if (has_changed.item<double>() > 0 || result.gradient_norm == 0 || job.monitor == nullptr) {
    return;
  }
  log_warning(
      "step {} changed no weight: at a learning rate of {:.3g} and a gradient norm of {:.3g} every "
      "update is smaller than the rounding of the weights, so nothing is learned; raise "
      "learning_rate",
      job.progress.step,
      learning_rate,
      result.gradient_norm);
  job.monitor->event(
      "unchanged weights", {{"learning_rate", learning_rate}, {"grad_norm", result.gradient_norm}});
}

}  // namespace lockstep::train
