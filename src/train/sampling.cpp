// Converts the configuration of a run to options of its sampler.
#include "train/sampling.h"

#include <string>

#include "base/log.h"

namespace lockstep::train {
namespace {

/// Returns the lengths by which training sequences are grouped. Null, with a warning, if grouping
/// would not reduce padding.
data::DrawLengths lengths_to_group(
    const data::SequenceView& rows, const RankContext& rank_context) {
  const data::Packing packing = rows.packing();
  if (packing == data::Packing::kConcatenated || packing == data::Packing::kDocuments) {
    if (rank_context.is_first()) {
      log_warning(
          "training.train_sampling_strategy=group_by_length has no effect: packed rows "
          "(data.packing={}) have almost no padding; the order is random",
          data::name_of(packing));
    }
    return nullptr;
  }
  return data::lengths_of_draws(rows);
}

data::SampleOrder order_of(const std::string& strategy) {
  return strategy == "sequential"        ? data::SampleOrder::kSequential
         : strategy == "group_by_length" ? data::SampleOrder::kGroupedByLength
                                         : data::SampleOrder::kRandom;
}

}  // namespace

data::SamplerOptions sampler_options(const Job& job, const RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  data::SamplerOptions options;
  options.sequences = job.datasets.train->size();
  options.micro_batch = training.per_device_train_batch_size;
  options.global_batch = job.global_batch;
  options.rank = job.axes->coordinate().data;
  options.ranks = job.axes->mesh().data;
  options.order = order_of(training.train_sampling_strategy);
  if (options.order == data::SampleOrder::kGroupedByLength) {
    options.lengths = lengths_to_group(*job.datasets.train, rank_context);
    options.order = options.lengths != nullptr ? options.order : data::SampleOrder::kRandom;
  }
  options.batch = options.global_batch / training.gradient_accumulation_steps;
  options.drop_last = training.dataloader_drop_last;
  for (const data::MixedRows& source : job.datasets.train->sources()) {
    options.sources.push_back({source.rows->size(), source.weight, source.max_epochs});
  }
  return options;
}

}  // namespace lockstep::train
