// Computes derived quantities of a job: layer splits, parameter counts, operations.
#include "plan/workload/job.h"

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

double Job::micro_tokens(Stream stream) const {
  return static_cast<double>(micro_batch) * static_cast<double>(length(stream)) / mesh.context;
}

double Job::all_micro_tokens() const {
  return micro_tokens(Stream::kTarget) + micro_tokens(Stream::kSource);
}

void Job::set_data_length(int64_t length) {
  source = model.is_encoder_decoder() ? length : 0;
  sequence = model.is_encoder_decoder() && !model.head.classifies() ? length + 1 : length;
}

double Job::step_tokens() const {
  return static_cast<double>(global_batch) * static_cast<double>(sequence + source);
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

bool has_score_bias(const model::ModelConfig& model) {
  return model.relative_positions.buckets > 0;
}

const ParameterCounts& count_parameters(const model::ModelConfig& model) {
  return sizes_of(model).parameters;
}

double active_parameters(const model::ModelConfig& model) {
  const ModelSizes& sizes = sizes_of(model);
  return sizes.parameters.total() - sum_blocks(sizes.parameters.blocks, [&](BlockKind kind) {
           return sizes.linears_of(kind).own - sizes.linears_of(kind).active;
         });
}

double adapter_parameters(const Job& job, const BlockCounts& blocks) {
  const ModelSizes& sizes = sizes_of(job.model);
  return static_cast<double>(job.adapter_rank) * job.adapter_share *
         sum_blocks(blocks, [&](BlockKind kind) { return sizes.linears_of(kind).sides; });
}

double linear_parameters(const model::ModelConfig& model, const BlockCounts& blocks) {
  const ModelSizes& sizes = sizes_of(model);
  return sum_blocks(blocks, [&](BlockKind kind) {
    const LinearSizes& linears = sizes.linears_of(kind);
    return linears.own + linears.of_source;
  });
}

double expert_parameters(const model::ModelConfig& model, const BlockCounts& blocks) {
  const ModelSizes& sizes = sizes_of(model);
  return sum_blocks(blocks, [&](BlockKind kind) { return sizes.linears_of(kind).experts; });
}

double packed_bytes(int64_t bits, bool double_quantization, int64_t block_size) {
  // A scale has four bytes. With double quantization it has one byte, plus a float32 scale per 256
  // scales.
  const double scale = double_quantization ? 1 + 4.0 / 256 : 4;
  return bits == 8 ? 1 : 0.5 + scale / static_cast<double>(block_size);
}

double trained_parameters(const Job& job, BlockKind kind) {
  if (job.adapter_rank == 0) {
    return count_parameters(job.model).of(kind);
  }
  BlockCounts one;
  one.of[static_cast<size_t>(kind)] = 1;
  return adapter_parameters(job, one);
}

double gathered_block_bytes(const Job& job) {
  const double width = job.adapter_rank == 0 ? job.compute_bytes() : job.frozen_bytes;
  return count_parameters(job.model).largest_block() * width / job.mesh.tensor;
}

double model_flops(const Job& job) {
  const ModelSizes& sizes = sizes_of(job.model);
  const auto length = [&](Stream stream) { return static_cast<double>(job.length(stream)); };
  const auto queries = static_cast<double>(job.model.heads * job.model.head_dim);
  // Operations per sequence: parameters times tokens, plus both attention products.
  const double blocks = sum_blocks(blocks_of(job.model), [&](BlockKind kind) {
    const BlockParts& parts = parts_of(kind);
    const LinearSizes& linears = sizes.linears_of(kind);
    const double tokens = length(parts.stream);
    double sum = linears.active * tokens + linears.of_source * length(Stream::kSource);
    for (size_t i = 0; i < parts.attentions; ++i) {
      sum += 2 * tokens * length(parts.attention.at(i).keys) * queries;
    }
    return sum;
  });
  const double head = length(Stream::kTarget) * static_cast<double>(job.model.head_rows()) *
                      static_cast<double>(job.model.hidden_size);
  return 6 * static_cast<double>(job.global_batch) * (blocks + head);
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

bool schedule_goes(const Job& job) {
  return job.mesh.pipeline == 1 || job.schedule != schedule::Kind::kFile ||
         (job.mesh.pipeline == job.listed->schedule.ranks &&
          job.micro_batches() <= job.listed->schedule.micro_batches);
}

int64_t stages_of(const Job& job) {
  if (job.mesh.pipeline == 1 || job.greedy_held > 0) {
    return job.mesh.pipeline;
  }
  if (job.schedule == schedule::Kind::kFile) {
    return job.listed->schedule.stages;
  }
  const bool has_more =
      job.schedule == schedule::Kind::kInterleaved || job.schedule == schedule::Kind::kZbV;
  return static_cast<int64_t>(job.mesh.pipeline) * (has_more ? job.virtual_stages : 1);
}

int rank_of_stage(const Job& job, int64_t stage) {
  const int64_t ranks = job.mesh.pipeline;
  if (ranks > 1 && job.schedule == schedule::Kind::kFile) {
    return job.listed->schedule.rank_of_stage[static_cast<size_t>(stage)];
  }
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
                   model::stage_operations(job.model, job.data_length()),
                   static_cast<int>(stages),
                   /*least_of_last=*/0)
             : split_layers(job.model.layers, stages);
}

std::vector<BlockCounts> stage_blocks(const Job& job) {
  std::vector<BlockCounts> blocks;
  int64_t first = 0;
  for (const int64_t layers : split_layers(job)) {
    blocks.push_back(blocks_of(job.model, first, layers));
    first += layers;
  }
  return blocks;
}

std::vector<BlockCounts> rank_blocks(const Job& job) {
  const std::vector<BlockCounts> stages = stage_blocks(job);
  std::vector<BlockCounts> ranks(job.mesh.pipeline);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    ranks[rank_of_stage(job, static_cast<int64_t>(stage))] += stages[stage];
  }
  return ranks;
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Deal {
  double value = kNever;
  std::vector<int64_t> counts;  // layers per stage; empty if the cost is infinite
};

// Distributes layers over stages, with at least `least` per stage, such that the cost is minimal.
// The cost of a split is its stage costs combined by combine(), whose result must not be below its
// arguments.
template <class Combine>
Deal deal_layers(
    int64_t layers, int64_t stages, int64_t least, const StageCost& cost, Combine combine) {
  // best[n]: minimum cost of n layers on the previous stages. chosen[s][n]: layers of stage s in
  // that minimum.
  std::vector<double> best(layers + 1, kNever);
  best[0] = 0;
  std::vector<std::vector<int64_t>> chosen(stages, std::vector<int64_t>(layers + 1, 0));
  for (int64_t stage = 0; stage < stages; ++stage) {
    std::vector<double> next(layers + 1, kNever);
    for (int64_t held = 0; held <= layers; ++held) {
      for (int64_t mine = least; mine <= held; ++mine) {
        if (best[held - mine] >= next[held]) {
          continue;
        }
        const double value = combine(best[held - mine], cost(stage, held - mine, held));
        if (value < next[held]) {
          next[held] = value;
          chosen[stage][held] = mine;
        }
      }
    }
    best = std::move(next);
  }
  Deal deal{best[layers], {}};
  if (deal.value == kNever) {
    return deal;
  }
  deal.counts.assign(stages, 0);
  int64_t left = layers;
  for (int64_t stage = stages - 1; stage >= 0; --stage) {
    deal.counts[stage] = chosen[stage][left];
    left -= deal.counts[stage];
  }
  return deal;
}

}  // namespace

std::vector<int64_t> balance_layers(int64_t layers, int64_t stages, const StageCost& cost) {
  constexpr double kMayRound = 1 + 1e-9;
  const int64_t least = layers >= stages ? 1 : 0;
  const Deal fastest =
      deal_layers(layers, stages, least, cost, [](double a, double b) { return std::max(a, b); });
  if (fastest.counts.empty()) {
    return {};
  }
  // Among splits with the same slowest stage, selects the most even one.
  const auto square = [&](int64_t stage, int64_t first, int64_t end) {
    const double seconds = cost(stage, first, end);
    return seconds <= fastest.value * kMayRound ? seconds * seconds : kNever;
  };
  return deal_layers(layers, stages, least, square, [](double a, double b) { return a + b; })
      .counts;
}

}  // namespace lockstep::plan
