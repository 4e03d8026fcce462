// Estimates the peak of temporary memory within a step.
#include "plan/memory/moments.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/memory/activations.h"

namespace lockstep::plan {
namespace {

/// Parameters that are gathered, reduced and updated together.
struct Unit {
  double parameters = 0;
  double blocks = 0;
};

double hidden_of(const Job& job) {
  return static_cast<double>(job.model.hidden_size);
}

/// Returns the number of embedding elements on one tensor rank.
double table_of(const Job& job) {
  return static_cast<double>(job.model.vocab_size) * hidden_of(job) / job.mesh.tensor;
}

/// Returns the bytes of a micro-batch's hidden states, one tensor per stream, on one tensor rank.
double stream_bytes(const Job& job) {
  return job.all_micro_tokens() * hidden_of(job) * job.compute_bytes();
}

/// Returns the trained units of one tensor rank in order of use. Counting from the last unit,
/// neighbors share a buffer of up to the bucket size. In stage 3 each unit is separate.
std::vector<Unit> units_of(const Job& job, const RankShare& share) {
  const ParameterCounts counts = count_parameters(job.model);
  std::vector<Unit> parts;
  const auto add = [&](double parameters, double blocks) {
    parts.push_back({parameters / job.mesh.tensor, blocks});
  };
  const bool all_is_trained = job.adapter_rank == 0;
  if (share.is_first && all_is_trained) {
    add(counts.embedding + counts.positions, 0);
  }
  visit_blocks(share.blocks, [&](BlockKind kind, double count) {
    for (double i = 0; i < count; ++i) {
      add(trained_parameters(job, kind), 1);
    }
  });
  if (share.is_last && all_is_trained) {
    const bool copies = job.model.ties_head() && !share.is_first;
    add(counts.head + (copies ? counts.embedding : 0), 0);
  }
  const double most = job.zero_stage < 3 ? job.software.unit_bytes / job.reduce_bytes() : 0;
  std::vector<Unit> units;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!units.empty() && units.back().parameters + part->parameters <= most) {
      units.back().parameters += part->parameters;
      units.back().blocks += part->blocks;
    } else {
      units.push_back(*part);
    }
  }
  std::reverse(units.begin(), units.end());
  return units;
}

/// Returns the bytes of a separate head gradient. With a persistent reduction buffer and one
/// micro-batch, the gradient is written directly to that buffer. Otherwise it is a tensor and, if
/// tied, stays in memory until the embedding's gradient is available.
double head_gradient(const Job& job) {
  const bool in_place = job.zero_stage < 2 && job.micro_batches() == 1;
  return in_place || job.adapter_rank > 0 ? 0 : table_of(job) * job.compute_bytes();
}

/// Chunks of rows for which logits are computed. With several chunks in 16 bits, the head's
/// gradient is accumulated in float32.
struct HeadRuns {
  double rows = 0;
  double sum = 0;
};

HeadRuns head_runs(const Job& job) {
  const Software& software = job.software;
  const double tokens = job.micro_tokens();
  const double words = static_cast<double>(job.model.head_rows()) / job.mesh.tensor;
  const double row = words * job.compute_bytes();
  const bool is_narrow = job.compute_bytes() < 4;
  const double sum = is_narrow ? 4 * table_of(job) : 0;
  const double instead = software.fused_head ? sum : 0;
  if (tokens * row <= software.logit_limit + instead) {
    return {tokens, 0};
  }
  const double at_once = std::max(128.0, std::floor(software.logit_limit / row));
  return {std::ceil(tokens / std::ceil(tokens / at_once)), sum};
}

double head_bytes(const Job& job) {
  const Software& software = job.software;
  const double width = job.compute_bytes(), hidden = hidden_of(job);
  const double words = static_cast<double>(job.model.head_rows()) / job.mesh.tensor;
  const HeadRuns runs = head_runs(job);
  double bytes = runs.rows * words * software.logit_bytes;
  if (software.fused_head) {
    // Logits of rows in panels of 64, plus half a panel. Hidden states packed in panels, scaled per
    // thread, and the float32 sum of their gradients.
    const double rows = std::ceil(runs.rows / 64) * 64;
    bytes = (rows + 32) * words * software.logit_bytes +
            rows * hidden * (width + software.threads * width + 4);
  }
  // Rows with a target, their gradient, and the output of the last norm.
  const double streams = 3 * job.micro_tokens() * hidden * width;
  const double sum = job.adapter_rank > 0 ? 0 : runs.sum;  // a frozen embedding has no gradient
  return bytes + sum + streams + head_gradient(job);
}

Moment head_moment(const Job& job, double kept) {
  Moment moment;
  moment.activations = kept;
  moment.logits = head_bytes(job);
  if (job.mesh.pipeline > 1) {
    return moment;
  }
  if (job.zero_stage >= 3) {
    moment.gathered = table_of(job) * job.compute_bytes();
  }
  if (job.zero_stage >= 2 && job.micro_batches() > 1 && job.adapter_rank == 0) {
    // Embedding gradient of the previous micro-batch, in transit.
    moment.buckets = table_of(job) * job.reduce_bytes();
  }
  return moment;
}

/// Returns the bytes of temporaries in a block's backward pass, without stored activations: the
/// gradient of its output plus the peak within the MLP.
double block_temporaries(const Job& job, BlockKind kind) {
  const double width = job.compute_bytes(), hidden = hidden_of(job);
  const double tokens = job.micro_tokens(parts_of(kind).stream);
  const double mlp = inner_width(job.model, kind) / job.mesh.tensor;
  // Adapters process rows in chunks. Inputs and results of a chunk each fill a cache in float32.
  constexpr double kParts = 2.0 * (2 << 20);
  const bool is_frozen = job.adapter_rank > 0;
  // The gradient of a linear layer is written directly to the accumulation buffer if the types
  // match.
  const bool in_place = job.reduce_bytes() == width;
  const double matrix = is_frozen ? kParts : in_place ? 0 : hidden * mlp * width;
  // Gradients of the last product's input, the gate and the gated value. The product of the latter
  // two has already been released.
  const double gates = job.model.gated_mlp ? 2 * tokens * mlp * width : 0;
  // Alternatively the weight gradient and a packed copy of one operand.
  const double laid_out = job.software.lays_out && !is_frozen
                              ? tokens * (job.model.gated_mlp ? hidden : mlp) * width
                              : 0;
  // With dropout, float32 gradients of all rows that an adapter reads, before and after the mask.
  const double masked = is_frozen && job.adapters_drop ? tokens * mlp * 2 * 4 : 0;
  return tokens * hidden * width +
         std::max(gates, tokens * mlp * width + masked + laid_out + matrix);
}

/// Returns the bytes of buffers in stage 2: the buffer being filled when `blocks_left` blocks
/// remain, and the one in transit.
double open_buffers(const Job& job, const std::vector<Unit>& units, double blocks_left) {
  double later = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    later += units[i].blocks;
    if (later >= blocks_left) {
      const double before = i + 1 < units.size() ? units[i + 1].parameters : 0;
      const double incoming = job.micro_batches() > 1 ? before / job.sharing() : 0;
      return (units[i].parameters + before + incoming) * job.reduce_bytes();
    }
  }
  return 0;
}

Moment backward_moment(const Job& job, const RankShare& share, double kept) {
  const BlockCounts& blocks = share.blocks;
  const auto count = static_cast<double>(blocks.all());
  const double each = count == 0 ? 0 : sum_blocks(blocks, [&](BlockKind kind) {
                                         return block_activations(job, kind, job.recompute);
                                       }) / count;
  double working = largest_of_blocks(blocks, [&](BlockKind kind) {
    Job alone = job;
    alone.recompute_share = 1;
    const double again = job.recompute == Recompute::kNone
                             ? 0
                             : block_activations(alone, kind, Recompute::kNone) -
                                   block_activations(alone, kind, job.recompute);
    return again + block_temporaries(job, kind);
  });
  if (job.model.ties_head() && job.mesh.pipeline == 1) {
    working += head_gradient(job);
  }
  const std::vector<Unit> units = units_of(job, share);
  Moment fullest;
  for (double done = 0; done < count; ++done) {
    Moment moment;
    moment.activations = kept - done * each;
    moment.working = working;
    if (job.mesh.pipeline > 1) {
      // See add_whole_units().
    } else if (job.zero_stage >= 3) {
      // The block in use and the prefetched block; gradients being written and in transit.
      moment.gathered = 2 * gathered_block_bytes(job);
      moment.buckets = largest_trained(job) * job.reduce_bytes() * (done > 0 ? 2 : 1);
    } else if (job.zero_stage == 2) {
      moment.buckets = open_buffers(job, units, count - done);
    }
    if (moment.total() > fullest.total()) {
      fullest = moment;
    }
  }
  return fullest;
}

Moment update_moment(const Job& job, const RankShare& share) {
  const Software& software = job.software;
  const double group = job.zero_stage >= 1 ? job.sharing() : 1;
  const std::vector<Unit> units = units_of(job, share);
  Moment moment;
  moment.working = software.update_scratch;
  double largest = 0, window = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    largest = std::max(largest, units[i].parameters);
    double near = units[i].parameters;
    near += i > 0 ? units[i - 1].parameters : 0;
    near += i + 1 < units.size() ? units[i + 1].parameters : 0;
    window = std::max(window, near);
  }
  moment.working += largest / group * software.update_copy;
  if (job.offload != Offload::kNone && job.offload_to == OffloadTo::kNvme) {
    // Units being read, updated and written.
    moment.working +=
        window / group *
        (software.optimizer_bytes + (job.offload == Offload::kAll ? software.weight_bytes : 0));
  }
  if (job.model.ties_head() && job.mesh.pipeline > 1 && (share.is_first || share.is_last)) {
    moment.buckets = table_of(job) *
                     job.reduce_bytes();  // embedding gradient from the other end of the pipeline
  }
  return moment;
}

/// Adds the memory of a pipeline rank, whose units stay gathered and whose gradients stay unsharded
/// until the step ends.
void add_whole_units(const Job& job, const RankShare& share, Moment& moment) {
  if (job.mesh.pipeline == 1 || job.zero_stage < 2) {
    return;
  }
  for (const Unit& unit : units_of(job, share)) {
    moment.buckets += unit.parameters * job.reduce_bytes();
    moment.gathered += job.zero_stage >= 3 ? unit.parameters * job.compute_bytes() : 0;
  }
  if (job.adapter_rank > 0 && job.zero_stage >= 3) {
    moment.gathered +=
        linear_parameters(job.model, share.blocks) * job.frozen_bytes / job.mesh.tensor;
  }
}

/// Returns the bytes of score tiles. Attention with dropout is computed in tiles of up to 2^20
/// scores (ops/attention.h), with four matrices per tile in memory. The tiles are allocated between
/// stored tensors and therefore reduce the space for other temporaries at any peak.
double score_tiles(const Job& job) {
  if (!job.software.dropout || has_score_bias(job.model)) {
    return 0;
  }
  constexpr double kAtOnce = 1 << 20;
  const double heads = static_cast<double>(job.model.heads) / job.mesh.tensor;
  const double all = heads * job.micro_tokens() * static_cast<double>(job.sequence);
  return 4 * std::min(kAtOnce, all) * job.compute_bytes();
}

}  // namespace

double largest_trained(const Job& job) {
  return largest_of_blocks(
             blocks_of(job.model), [&](BlockKind kind) { return trained_parameters(job, kind); }) /
         job.mesh.tensor;
}

Moment fullest_moment(const Job& job, const RankShare& share) {
  const double pipeline = job.mesh.pipeline;
  const double stages = static_cast<double>(stages_of(job)) / pipeline;
  const double input = stream_bytes(job) / (job.sequence_parallel ? job.mesh.tensor : 1);
  const auto of_block = [&](BlockKind kind) { return block_activations(job, kind, job.recompute); };
  // Each stage stores its input for every micro-batch: token embeddings or a received message.
  double kept = share.in_flight * (sum_blocks(share.blocks, of_block) + stages * input);
  if (pipeline > 1) {
    // Messages of the next four actions are already allocated. The first and last rank receive none
    // in one direction.
    const double one_way = 2 * (share.is_first || share.is_last ? 1 - 1 / stages : 1);
    kept += input * (one_way + 2);
  }
  Moment fullest = backward_moment(job, share, kept);
  for (const Moment& moment :
       {share.is_last ? head_moment(job, kept) : Moment{}, update_moment(job, share)}) {
    if (moment.total() > fullest.total()) {
      fullest = moment;
    }
  }
  fullest.working += score_tiles(job);
  add_whole_units(job, share, fullest);
  return fullest;
}

}  // namespace lockstep::plan
