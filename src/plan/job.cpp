#include "plan/job.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/stages.h"

namespace lockstep::plan {

std::string_view recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kElementwise:
      return "elementwise";
    case Recompute::kActivation:
      return "selective";
    case Recompute::kAttention:
      return "attention";
    case Recompute::kOperations:
      return "operations";
    case Recompute::kHalf:
      return "half";
    case Recompute::kFull:
      break;
  }
  return "full";
}

std::string_view offload_name(Offload offload) {
  switch (offload) {
    case Offload::kNone:
      return "none";
    case Offload::kOptimizer:
      return "optimizer";
    case Offload::kAll:
      break;
  }
  return "all";
}

int64_t Job::micro_batches() const {
  const int64_t of_step = micro_batch * mesh.data;
  return std::max<int64_t>(1, (global_batch + of_step - 1) / of_step);
}

double Job::micro_tokens() const {
  return static_cast<double>(micro_batch) * static_cast<double>(sequence) / mesh.context;
}

double Job::sharing() const {
  const int all = mesh.data * mesh.context;
  return shard_ranks > 0 ? std::min(shard_ranks, all) : all;
}

double Job::gradient_bytes() const {
  return micro_batches() > 1 && software.sum_bytes > 0 ? software.sum_bytes
                                                       : software.gradient_bytes;
}

double Job::reduce_bytes() const {
  return micro_batches() > 1 && software.sum_bytes > 0 ? software.sum_bytes : software.reduce_bytes;
}

bool gated(const model::ModelConfig& model) {
  return model.family != model::Family::kGpt2;
}

ParameterCounts count_parameters(const model::ModelConfig& model) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto keys = static_cast<double>(model.kv_heads * model.head_dim);
  const auto width = static_cast<double>(model.intermediate_size);
  const bool gpt2 = model.family == model::Family::kGpt2;
  ParameterCounts counts;
  counts.block = hidden * (queries + 2 * keys) + queries * hidden +
                 (gated(model) ? 3 : 2) * hidden * width + (gpt2 ? 4 : 2) * hidden;
  counts.block += model.qkv_bias ? queries + 2 * keys : 0;
  counts.block += model.attention_out_bias ? hidden : 0;
  counts.block += model.mlp_bias ? width + hidden : 0;
  counts.embedding = static_cast<double>(model.vocab_size) * hidden;
  counts.positions = gpt2 ? static_cast<double>(model.max_positions) * hidden : 0;
  counts.head = (model.tie_word_embeddings ? 0 : counts.embedding) + (gpt2 ? 2 : 1) * hidden;
  return counts;
}

double adapter_parameters(const model::ModelConfig& model, int64_t rank) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto keys = static_cast<double>(model.kv_heads * model.head_dim);
  const auto width = static_cast<double>(model.intermediate_size);
  const double sides =
      2 * (hidden + queries) + 2 * (hidden + keys) + (gated(model) ? 3 : 2) * (hidden + width);
  return static_cast<double>(rank) * sides;
}

double model_flops(const Job& job) {
  const model::ModelConfig& model = job.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto keys = static_cast<double>(model.kv_heads * model.head_dim);
  const double products =
      static_cast<double>(model.layers) *
          (hidden * (2 * queries + 2 * keys) +
           (gated(model) ? 3 : 2) * hidden * static_cast<double>(model.intermediate_size)) +
      static_cast<double>(model.vocab_size) * hidden;
  const double attention =
      2 * static_cast<double>(model.layers) * static_cast<double>(job.sequence) * queries;
  const double tokens = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence);
  return 6 * tokens * (products + attention);
}

std::vector<int64_t> split_layers(int64_t layers, int64_t stages) {
  const double edge = layers % stages == 0 ? 0 : 1;
  const double total = static_cast<double>(layers) + 2 * edge;
  std::vector<int64_t> counts(stages, 0);
  int64_t given = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const double until =
        total * static_cast<double>(stage + 1) / static_cast<double>(stages) - edge;
    const auto end = static_cast<int64_t>(std::floor(until + 0.5));
    counts[stage] = (stage + 1 == stages ? layers : std::clamp(end, given, layers)) - given;
    given += counts[stage];
  }
  return counts;
}

int64_t stages_of(const Job& job) {
  if (job.mesh.pipeline == 1 || job.greedy_held > 0) {
    return job.mesh.pipeline;
  }
  const bool has_more =
      job.schedule == schedule::Kind::kInterleaved || job.schedule == schedule::Kind::kZbV;
  return static_cast<int64_t>(job.mesh.pipeline) * (has_more ? job.virtual_stages : 1);
}

int rank_of_stage(const Job& job, int64_t stage) {
  const int64_t ranks = job.mesh.pipeline;
  const bool back = job.schedule == schedule::Kind::kZbV && stage >= ranks;
  return static_cast<int>(back ? stages_of(job) - 1 - stage : stage % ranks);
}

std::vector<int64_t> split_layers(const Job& job) {
  const int64_t stages = stages_of(job);
  if (static_cast<int64_t>(job.split.size()) == stages) {
    return job.split;
  }
  return job.software.balances_stages && stages > 1 && stages <= job.model.layers
             ? model::split_evenly(
                   model::stage_operations(job.model, job.sequence),
                   static_cast<int>(stages),
                   /*least_of_last=*/0)
             : split_layers(job.model.layers, stages);
}

std::vector<int64_t> balance_layers(
    int64_t layers, const std::vector<double>& block, const std::vector<double>& edge) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto stages = static_cast<int64_t>(block.size());
  const int64_t least = layers >= stages ? 1 : 0;
  // best[n]: the slowest of the stages so far when they hold n blocks; chosen[s][n]: what stage s
  // holds of them.
  std::vector<double> best(layers + 1, kNever);
  best[0] = 0;
  std::vector<std::vector<int64_t>> chosen(stages, std::vector<int64_t>(layers + 1, 0));
  for (int64_t stage = 0; stage < stages; ++stage) {
    std::vector<double> next(layers + 1, kNever);
    for (int64_t held = 0; held <= layers; ++held) {
      for (int64_t mine = least; mine <= held; ++mine) {
        const double time =
            std::max(best[held - mine], block[stage] * static_cast<double>(mine) + edge[stage]);
        if (time < next[held]) {
          next[held] = time;
          chosen[stage][held] = mine;
        }
      }
    }
    best = std::move(next);
  }
  std::vector<int64_t> counts(stages, 0);
  int64_t left = layers;
  for (int64_t stage = stages - 1; stage >= 0; --stage) {
    counts[stage] = chosen[stage][left];
    left -= counts[stage];
  }
  return counts;
}

}  // namespace lockstep::plan
