// Estimates activation memory of blocks and the number of micro-batches in flight.
#include "plan/memory/activations.h"

#include <algorithm>
#include <limits>

#include "model/description.h"
#include "schedule/check.h"
#include "schedule/file.h"

namespace lockstep::plan {

namespace {

// Returns the number of micro-batches in flight on each rank, in units of the rank's blocks, by
// evaluating the schedule.
std::vector<double> count_held(const schedule::Schedule& schedule) {
  const schedule::Report report = schedule::check(schedule);
  std::vector<double> held;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto own = static_cast<double>(schedule.stages_of(rank).size());
    held.push_back(report.held[static_cast<size_t>(rank)] / std::max(1.0, own));
  }
  return held;
}

// Returns the nominal value for the kind of schedule, which is reached with enough micro-batches.
double claimed(const Job& job, int rank) {
  const double p = job.mesh.pipeline;
  const double v = job.virtual_stages;
  switch (job.schedule) {
    case schedule::Kind::kNaive:
      return 1;
    case schedule::Kind::kGpipe:
      return std::numeric_limits<double>::infinity();
    case schedule::Kind::kOneFOneB:
      return p - rank;
    case schedule::Kind::kInterleaved:
      return (2 * (p - rank - 1) + (v - 1) * p + 1) / v;
    case schedule::Kind::kZbH2:
      return 2 * p - 1;
    case schedule::Kind::kZbH1:
    case schedule::Kind::kZbV:
    case schedule::Kind::kFile:
      break;
  }
  return p;
}

}  // namespace

std::vector<double> micro_batches_in_flight(const Job& job) {
  const int ranks = job.mesh.pipeline;
  const auto micro_batches = static_cast<int>(job.micro_batches());
  if (ranks == 1) {
    return {1};
  }
  const bool is_made = job.greedy_held > 0;
  if (!is_made && job.schedule == schedule::Kind::kFile) {
    return count_held(schedule::cut_down(job.listed->schedule, micro_batches));
  }
  // Schedules with several stages per rank have fewer micro-batches in flight than nominal if the
  // number of micro-batches is not divisible by the number of ranks. Evaluated only for schedules
  // with few actions because it visits every action.
  constexpr int64_t kFew = 4096;
  const bool is_shorter =
      job.schedule == schedule::Kind::kInterleaved || job.schedule == schedule::Kind::kZbV;
  if (!is_made && is_shorter && micro_batches % ranks != 0 &&
      stages_of(job) * micro_batches <= kFew) {
    return count_held(schedule::make_schedule(
        {.kind = job.schedule,
         .ranks = ranks,
         .micro_batches = micro_batches,
         .virtual_stages = job.virtual_stages}));
  }
  std::vector<double> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(
        std::min<double>(is_made ? job.greedy_held : claimed(job, rank), micro_batches));
  }
  return result;
}

namespace {

// Returns the bytes that attention with a bias stores per score. Probabilities are stored as
// softmax output and as operand of the product (ops/biased_attention.h).
double biased_score_bytes(const Job& job) {
  const double width = job.compute_bytes();
  return 4 + (job.software.dropout || width < 4 ? width : 0);
}

// Returns the number of scores of all attentions of a block on one tensor rank.
double scores_of(const Job& job, BlockKind kind) {
  const BlockParts& parts = parts_of(kind);
  const double heads = static_cast<double>(job.model.heads) / job.mesh.tensor;
  double keys = 0;
  for (size_t i = 0; i < parts.attentions; ++i) {
    keys += static_cast<double>(job.length(parts.attention[i].keys));
  }
  return heads * job.micro_tokens(parts.stream) * keys;
}

// Returns the bytes of scores that a block stores. Ring attention recomputes scores instead.
double kept_scores(const Job& job, BlockKind kind) {
  const double width = job.compute_bytes();
  if (has_score_bias(job.model)) {
    const bool in_ring = job.mesh.context > 1 && job.software.ring_in_memory;
    return in_ring ? 0 : scores_of(job, kind) * biased_score_bytes(job);
  }
  return job.software.fused_attention
             ? 0
             : scores_of(job, kind) * (job.software.dropout ? width * 2 + 1 : width);
}

// Returns the elements that a block stores in addition to the inputs of its context-parallel
// exchanges. Ring attention without a fused loop stores the output by heads. Ulysses stores queries
// and output by heads, and copies of keys and values if there are more ranks than key-value heads.
double exchanged(const Job& job, double tokens) {
  if (job.mesh.context == 1 || !job.software.keeps_exchanged) {
    return 0;
  }
  const auto of = [&](int64_t heads) {
    return tokens * static_cast<double>(heads * job.model.head_dim) / job.mesh.tensor;
  };
  const bool is_packed = sizes_of(job.model).packs_heads;
  if (job.context_attention == ContextAttention::kRing) {
    const bool is_fused = job.software.fused_attention && !has_score_bias(job.model);
    return is_fused ? 0 : of(job.model.heads);
  }
  const int64_t ranks = job.mesh.context, keys = job.model.kv_heads;
  const int64_t copies = keys % ranks == 0 ? keys : ranks % keys == 0 ? ranks : job.model.heads;
  return of(job.model.heads) + 2 * of(copies - keys) +
         (is_packed ? of(job.model.heads) + 2 * of(keys) : 0);
}

// Returns the elements that adapters store in a block. LoRA recomputes its output and needs only
// the inputs of the linear layers, which are counted elsewhere. DoRA also stores the results of the
// products.
double kept_by_adapters(const Job& job, BlockKind kind) {
  if (job.adapter_rank == 0 || !job.adapters_decompose) {
    return 0;
  }
  // Tensor-parallel ranks defer the weight gradients of column-parallel layers, and also recompute
  // these results.
  const LinearSizes& linears = sizes_of(job.model).linears_of(kind);
  const double cut = job.mesh.tensor > 1 ? 0 : linears.cut_outputs;
  const double all = job.micro_tokens(parts_of(kind).stream) * (cut + linears.whole_outputs) +
                     job.micro_tokens(Stream::kSource) * linears.source_outputs / job.mesh.tensor;
  return all * std::min(1.0, job.adapter_share);
}

}  // namespace

double block_activations(const Job& job, BlockKind kind, Recompute recompute) {
  const model::ModelConfig& model = job.model;
  const BlockParts& parts = parts_of(kind);
  const double tensor = job.mesh.tensor;
  const double tokens = job.micro_tokens(parts.stream);
  const double width = job.compute_bytes();
  const auto hidden = static_cast<double>(model.hidden_size);
  const double queries = static_cast<double>(model.heads * model.head_dim) / tensor;
  const double keys = static_cast<double>(model.kv_heads * model.head_dim) / tensor;
  const double mlp = inner_width(model, kind) / tensor;
  const double spread = job.sequence_parallel ? tensor : 1;
  // Each tensor rank stores the full inputs of norms and tensor-parallel regions unless sequence
  // parallelism splits them.
  const double input = tokens * hidden * width / spread;
  const double end = parts.ends_stream ? 1 : 0;  // output of the last norm
  if (recompute == Recompute::kFull) {
    const double others = 1 - job.recompute_share;
    return input * (1 + end) * job.recompute_share +
           (others > 0 ? others * block_activations(job, kind, job.recompute_others) : 0);
  }
  const double masks = job.software.dropout
                           ? parts.sublayers() * tokens * hidden * job.software.mask_bytes / spread
                           : 0;
  const double norms = parts.sublayers() + end;
  // With sequence parallelism, the output of a norm is gathered. Some programs store the gathered
  // tensor.
  const double region = job.software.keeps_exchanged ? input * spread : input;
  const double regions = norms * (input + region) + sizes_of(model).further_norms * input + masks;
  // Queries, keys, values and the output of each attention.
  double heads = 0;
  for (size_t i = 0; i < parts.attentions; ++i) {
    heads += tokens * 2 * queries + job.micro_tokens(parts.attention[i].keys) * 2 * keys;
  }
  // Inputs of the norms of heads.
  heads += model.head_norms ? tokens * (queries + keys) : 0;
  heads += static_cast<double>(parts.attentions) * exchanged(job, tokens);
  heads += kept_by_adapters(job, kind);
  if (kind == BlockKind::kSparseDecoder) {  // expert inputs and outputs, sorted and unsorted
    heads += tokens * static_cast<double>(3 * model.experts.per_token) * hidden;
  }
  // Input and output of the activation function. 8-bit products store their inputs in 8 bits.
  const bool is_narrow = job.precision == Precision::kFloat8 && !job.software.rounds_again;
  const double narrow = is_narrow ? 1 : width;
  const double activated = (model.gated_mlp && job.software.keeps_gated ? 1 : 0) * mlp;
  const double into = model.gated_mlp ? 2 : job.software.keeps_ungated ? 1 : 0;
  const double inner = width * (heads + tokens * into * mlp) + tokens * narrow * (mlp + activated);
  const double scores = kept_scores(job, kind);
  switch (recompute) {
    case Recompute::kElementwise:
      return regions - norms * input + inner - tokens * narrow * (mlp + activated) + scores;
    case Recompute::kActivation:
      return regions + inner - tokens * narrow * mlp + scores;
    case Recompute::kAttention:
      return regions + inner;
    case Recompute::kOperations:
      return norms * input + width * (heads + tokens * (model.gated_mlp ? 1 : 0.5) * mlp);
    case Recompute::kHalf:
      return (regions + inner + scores + input) / 2;
    case Recompute::kNone:
    case Recompute::kFull:
      break;
  }
  return regions + inner + scores;
}

}  // namespace lockstep::plan
