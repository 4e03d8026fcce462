// Simulates the time of a training step.
#include "plan/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "plan/cost/kernels.h"
#include "plan/memory/activations.h"
#include "schedule/file.h"
#include "schedule/greedy.h"

namespace lockstep::plan {

namespace {

double of_kind(const Job& job, const Device& device) {
  return job.precision == Precision::kFloat8 && device.flops8 > 0 ? device.flops8
         : job.precision == Precision::kFloat32                   ? device.flops32
                                                                  : device.flops16;
}

// Returns the slowest node of a pipeline rank.
const NodeGroup& node_of_stage(const Job& job, const Cluster& cluster, int rank) {
  const int ranks = job.mesh.data * job.mesh.context * job.mesh.tensor;
  return cluster.slowest_of(rank * ranks, ranks);
}

// Trained parameters of a rank: parameters replicated on all data- and context-parallel ranks, and
// the rank's own experts.
struct Trained {
  double shared = 0, experts = 0;
  double all() const { return shared + experts; }
  /// Returns the number of parameters per rank if `sharing` ranks shard each state.
  double held(double sharing, double expert_ranks) const {
    return shared / sharing + experts / std::max(1.0, sharing / expert_ranks);
  }
};

// Returns the trained parameters on one tensor rank of a stage.
Trained trained_parameters(const Job& job, const BlockCounts& blocks, bool first, bool last) {
  if (job.adapter_rank > 0) {
    return {adapter_parameters(job, blocks) / job.mesh.tensor, 0};
  }
  const ParameterCounts counts = count_parameters(job.model);
  double parameters = counts.of(blocks);
  parameters += first ? counts.embedding + counts.positions : 0;
  parameters += last ? counts.head : 0;
  // Both ends of a pipeline hold a tied weight.
  parameters += last && !first && job.model.ties_head() ? counts.embedding : 0;
  const double experts = job.expert_ranks > 1 ? expert_parameters(job.model, blocks) : 0;
  return {(parameters - experts) / job.mesh.tensor, experts / job.mesh.tensor / job.expert_ranks};
}

// Returns the time to add a micro-batch's gradients to the accumulated gradients.
double sum_seconds(const Job& job, const Device& device, const Trained& parameters) {
  if (job.micro_batches() == 1) {
    return 0;
  }
  const bool sums_shards = job.zero_stage >= 2 && job.software.reduce_each_micro_batch;
  return copy_seconds(
      device,
      parameters.held(sums_shards ? job.sharing() : 1, job.expert_ranks) *
          job.software.sum_bytes_moved);
}

// Moves gradient times to the forward pass, for gradients that are computed there.
PassTimes all_forward(const PassTimes& times) {
  PassTimes result;
  result.forward = times.forward + times.input + times.weight;
  result.forward_tensor = times.forward_tensor + times.backward_tensor;
  result.kernels = times.kernels;
  return result;
}

struct Stages {
  std::vector<PassTimes> times;   // by stage
  std::vector<double> recompute;  // seconds of recomputation in `input`, by stage
};

// Times of each kind of block on a node.
struct BlockTimes {
  std::array<PassTimes, kBlockKinds> pass;
  std::array<double, kBlockKinds> recompute{};  // recomputation time included in `input`

  BlockTimes(const Job& job, const Cluster& cluster, const NodeGroup& node) {
    Job plain = job;
    plain.recompute = Recompute::kNone;
    visit_blocks(blocks_of(job.model), [&](BlockKind kind, double /*count*/) {
      const auto at = static_cast<size_t>(kind);
      pass[at] = block_seconds(job, cluster, node, kind);
      recompute[at] = pass[at].input - block_seconds(plain, cluster, node, kind).input;
    });
  }
};

Stages stage_times(const Job& job, const Cluster& cluster, const schedule::Schedule& schedule) {
  Stages result;
  const std::vector<BlockCounts> blocks = stage_blocks(job);
  const NodeGroup* last_node = nullptr;  // stages on equal nodes have equal block times
  std::optional<BlockTimes> block;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const NodeGroup& node = node_of_stage(job, cluster, schedule.rank_of_stage[stage]);
    if (&node != last_node) {
      block.emplace(job, cluster, node);
      last_node = &node;
    }
    PassTimes times;
    double recompute = 0;
    visit_blocks(blocks[stage], [&](BlockKind kind, double count) {
      const auto at = static_cast<size_t>(kind);
      times += block->pass[at].scaled(count);
      recompute += block->recompute[at] * count;
    });
    if (stage == 0) {
      times += embedding_seconds(job, cluster, node);
    }
    if (stage + 1 == schedule.stages) {
      times += job.software.head_in_forward ? all_forward(head_seconds(job, cluster, node))
                                            : head_seconds(job, cluster, node);
    }
    const Trained parameters =
        trained_parameters(job, blocks[stage], stage == 0, stage + 1 == schedule.stages);
    times.of(Kernels::kSums) = sum_seconds(job, node.device, parameters);
    times.weight += times.of(Kernels::kSums);
    result.times.push_back(times);
    result.recompute.push_back(recompute);
  }
  return result;
}

// Groups of ranks with the same parameters. Neighbors in a group are `tensor` ranks apart; for
// experts, `tensor` times the number of expert-parallel ranks.
struct DataGroups {
  CollectiveGroup all;       // ranks that reduce gradients
  CollectiveGroup shards;    // ranks that shard one state
  CollectiveGroup replicas;  // ranks that hold the same shard
};

DataGroups data_groups(const Job& job, const NodeGroup& node, int expert_ranks = 1) {
  const double members =
      static_cast<double>(job.mesh.data) * job.mesh.context / std::max(expert_ranks, 1);
  const double sharing = std::clamp(job.sharing() / expert_ranks, 1.0, members);
  const double per_node = std::max(
      1.0, std::floor(static_cast<double>(node.devices_per_node) / job.mesh.tensor / expert_ranks));
  const auto group = [](double count, double most) {
    return CollectiveGroup{count, std::min(count, std::max(1.0, std::floor(most)))};
  };
  return {
      group(members, per_node),
      group(sharing, per_node),
      group(members / sharing, per_node / sharing)};
}

// Returns the time to send all streams between two pipeline ranks. The message stays within a node
// if the first rank of one and the last rank of the other are in the same node.
double message_time(const Job& job, const Cluster& cluster, int from, int to) {
  const bool cut = job.software.cuts_messages || job.sequence_parallel;
  const double bytes = job.all_micro_tokens() * static_cast<double>(job.model.hidden_size) *
                       job.compute_bytes() / (cut ? job.mesh.tensor : 1);
  const int ranks = job.mesh.data * job.mesh.context * job.mesh.tensor;
  const int first = std::min(from, to) * ranks;
  const int last = std::max(from, to) * ranks + ranks - 1;
  const bool within = cluster.node_of(first) == cluster.node_of(last);
  return std::max(
             message_seconds(cluster, cluster.group_of(first), within, bytes),
             message_seconds(cluster, cluster.group_of(last), within, bytes)) +
         (job.software.waits_for_messages ? cluster.physics.message_seconds : 0);
}

schedule::Durations durations_of(
    const Job& job,
    const Cluster& cluster,
    const schedule::Schedule& schedule,
    const Stages& stages) {
  schedule::Durations durations;
  for (const PassTimes& times : stages.times) {
    durations.stages.push_back(
        {times.forward + times.forward_tensor, times.input + times.backward_tensor, times.weight});
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int next = std::min(stage + 1, schedule.stages - 1);
    durations.message.push_back(
        message_time(job, cluster, schedule.rank_of_stage[stage], schedule.rank_of_stage[next]));
  }
  if (job.software.blocking_messages) {
    durations.send_blocks = durations.message;
  }
  return durations;
}

schedule::Schedule schedule_of(const Job& job, const Cluster& cluster) {
  if (job.greedy_held > 0) {
    schedule::Schedule stages;  // with one stage per rank; used to compute the times
    stages.ranks = stages.stages = job.mesh.pipeline;
    for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
      stages.rank_of_stage.push_back(rank);
    }
    return schedule::make_greedy(
        static_cast<int>(job.micro_batches()),
        durations_of(job, cluster, stages, stage_times(job, cluster, stages)),
        {.held = job.greedy_held, .weight_share = deferred_share(job)});
  }
  if (job.schedule == schedule::Kind::kFile) {
    return schedule::cut_down(job.listed->schedule, static_cast<int>(job.micro_batches()));
  }
  return schedule::make_schedule(
      {.kind = job.schedule,
       .ranks = job.mesh.pipeline,
       .micro_batches = static_cast<int>(job.micro_batches()),
       .virtual_stages = job.schedule == schedule::Kind::kInterleaved ? job.virtual_stages : 0});
}

// Returns the parameters that the largest pipeline rank reduces and updates.
Trained stage_parameters(const Job& job) {
  const std::vector<BlockCounts> blocks = rank_blocks(job);
  const int rank_of_first = rank_of_stage(job, 0);
  const int rank_of_last = rank_of_stage(job, stages_of(job) - 1);
  Trained most;
  for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
    const Trained of_rank =
        trained_parameters(job, blocks[rank], rank == rank_of_first, rank == rank_of_last);
    most = of_rank.all() > most.all() ? of_rank : most;
  }
  return most;
}

// Returns true if ranks start the next step without waiting for each other.
bool ends_for_itself(const Job& job) {
  using schedule::Kind;
  return job.software.lone_optimizer_steps &&
         (job.greedy_held > 0 || job.schedule == Kind::kZbH1 || job.schedule == Kind::kZbH2 ||
          job.schedule == Kind::kZbV);
}

struct DataCost {
  double exposed = 0;
  double slowed = 0;  // slowdown of compute by concurrent communication
};

// ZeRO stages 0 to 2: one reduction per step (or micro-batch) and, with a sharded optimizer, a
// gather of the updated parameters.
DataCost reduce_once(
    const Job& job, const Cluster& cluster, const NodeGroup& node, double last_backward) {
  const Trained trained = stage_parameters(job);
  const double times = job.zero_stage >= 2 && job.software.reduce_each_micro_batch
                           ? static_cast<double>(job.micro_batches())
                           : 1;
  double wire = 0;
  double tail = 0;
  const auto reduce = [&](double parameters, const DataGroups& groups) {
    const double reduced = parameters * job.reduce_bytes();
    if (job.zero_stage == 0 || job.software.reduces_whole) {
      wire += all_reduce_seconds(cluster, node, groups.all, reduced);
    } else {
      wire += all_gather_seconds(cluster, node, groups.shards, reduced) * times +
              all_reduce_seconds(cluster, node, groups.replicas, reduced / groups.shards.members);
    }
    if (job.zero_stage > 0) {
      tail +=
          all_gather_seconds(cluster, node, groups.shards, parameters * job.software.weight_bytes);
    }
  };
  reduce(trained.shared, data_groups(job, node));
  if (trained.experts > 0) {
    reduce(trained.experts, data_groups(job, node, job.expert_ranks));
  }
  DataCost cost;
  if (!job.software.overlap_data) {
    cost.exposed = wire + tail;
    return cost;
  }
  // The reduction overlaps with the backward pass of the last micro-batch, and the gather with the
  // next forward pass. The last bucket does not overlap.
  const double last =
      wire / static_cast<double>(std::max<int64_t>(2, job.model.layers / job.mesh.pipeline));
  const double room = last_backward * times;
  cost.exposed = std::max(wire - room, last) + std::max(tail - room / 2, 0.0);
  cost.slowed = (wire + tail - cost.exposed) * cluster.physics.contention;
  return cost;
}

// Returns the combined time of two concurrent activities: the maximum of both times, plus an
// increase if they are similar. Both vary, and neither can be more than one unit ahead.
double side_by_side(const Physics& physics, double a, double b) {
  const double longer = std::max(a, b);
  if (longer <= 0) {
    return 0;
  }
  const double power = physics.overlap_power;
  return longer * std::pow(1 + std::pow(std::min(a, b) / longer, power), 1 / power);
}

// ZeRO stage 3, per micro-batch: each unit is gathered before its forward and backward passes, and
// its gradient is reduced. The communication stream is one unit ahead of the compute stream.
DataCost gather_units(const Job& job, const Cluster& cluster, const NodeGroup& node) {
  const DataGroups groups = data_groups(job, node);
  const DataGroups of_experts = data_groups(job, node, job.expert_ranks);
  const auto ring_of = [&](CollectiveGroup group) {
    group.per_node =
        job.software.flat_gather && group.members > group.per_node ? 1 : group.per_node;
    return group;
  };
  const auto micro_batches = static_cast<double>(job.micro_batches());
  const ParameterCounts counts = count_parameters(job.model);
  const double edge = (counts.embedding + counts.positions + counts.head) / job.mesh.tensor;
  // Only block weights are quantized.
  const double width = job.adapter_rank > 0 ? job.frozen_bytes : job.compute_bytes();
  // Frozen parameters have no gradients to reduce.
  const double trained = job.adapter_rank > 0 ? adapter_parameters(job, counts.blocks) /
                                                    std::max(counts.of(counts.blocks), 1.0)
                                              : 1;
  const auto gather = [&](double bytes, const DataGroups& among) {
    return all_gather_seconds(cluster, node, ring_of(among.shards), bytes);
  };
  const double edge_bytes = edge * job.compute_bytes();
  const auto scatter = [&](double parameters, const DataGroups& among) {
    const double bytes = parameters * trained * job.reduce_bytes();
    // Replicas all-reduce their shards once per step.
    return gather(bytes, among) +
           all_reduce_seconds(cluster, node, among.replicas, bytes / among.shards.members) /
               micro_batches;
  };
  DataCost cost;
  double first_gather = 0;  // gather time of one block
  visit_blocks(counts.blocks, [&](BlockKind kind, double layers) {
    const PassTimes block = block_seconds(job, cluster, node, kind);
    BlockCounts one;
    one.of[static_cast<size_t>(kind)] = 1;
    const double spread = job.expert_ranks > 1 ? expert_parameters(job.model, one) : 0;
    const double unit = (counts.of(kind) - spread) / job.mesh.tensor;
    const double experts = spread / job.mesh.tensor / job.expert_ranks;  // experts on this rank
    const double gathered = gather(unit * width, groups) + gather(experts * width, of_experts);
    const double scattered = scatter(unit, groups) + scatter(experts, of_experts);
    const double forward_compute = block.forward + block.forward_tensor;
    const double backward_compute = block.input + block.weight + block.backward_tensor;
    const double forward_wire = gathered;
    const double backward_wire = (job.zero_stage >= 3 ? gathered : 0) + scattered;
    first_gather = first_gather > 0 ? first_gather : forward_wire;
    // In steady state, a unit takes the maximum of communication and compute time. Concurrent
    // communication slows down compute.
    const auto beside = [&](double compute, double wire) {
      const double slowed = std::min(wire, compute) * cluster.physics.contention;
      cost.slowed += layers * slowed;
      return layers * (side_by_side(cluster.physics, compute + slowed, wire) - compute - slowed);
    };
    cost.exposed += job.software.overlap_data ? beside(forward_compute, forward_wire) +
                                                    beside(backward_compute, backward_wire)
                                              : layers * (forward_wire + backward_wire);
    cost.exposed +=
        layers * (node.wait_seconds(forward_compute) + node.wait_seconds(backward_compute));
  });
  if (!job.software.overlap_data) {
    cost.exposed += 2 * gather(edge_bytes, groups) + scatter(edge, groups);
  } else {
    // The first gather and the last reduction do not overlap.
    const double edges =
        embedding_seconds(job, cluster, node).all() + head_seconds(job, cluster, node).all();
    const double gathered = gather(edge_bytes, groups);
    cost.exposed += gathered * 0.5 + first_gather + scatter(edge, groups) * 0.5 +
                    std::max(0.0, 1.5 * gathered - edges);
  }
  const double spread = job.expert_ranks > 1 ? expert_parameters(job.model, counts.blocks) : 0;
  const double blocks =
      (counts.of(counts.blocks) - spread * (1 - 1.0 / job.expert_ranks)) / job.mesh.tensor;
  cost.slowed += memory_seconds(node.device, (blocks + edge) * job.software.copy_bytes);
  cost.exposed *= micro_batches;
  cost.slowed *= micro_batches;
  return cost;
}

double optimizer_seconds(const Job& job, const Device& device) {
  const double shards = job.zero_stage >= 1 ? job.sharing() : 1;
  const double parameters = stage_parameters(job).held(shards, job.expert_ranks);
  return memory_seconds(device, parameters * job.software.update_bytes) / device.efficiency.update;
}

double offload_seconds(
    const Job& job, const Cluster& cluster, const NodeGroup& node, double compute) {
  const double shards = job.zero_stage >= 1 ? job.sharing() : 1;
  const double held = stage_parameters(job).held(shards, job.expert_ranks);
  const double rate = job.offload_to == OffloadTo::kNvme
                          ? node.device.file_bandwidth
                          : node.device.host_bandwidth * cluster.physics.link_efficiency;
  double exposed = 0;
  const bool stays = job.software.device_is_host && job.offload_to == OffloadTo::kHost;
  if (job.offload != Offload::kNone && !stays) {
    exposed += 2 * held * job.software.optimizer_bytes / rate;
  }
  if (job.activations_away > 0) {
    const double blocks = sum_blocks(blocks_of(job.model), [&](BlockKind kind) {
      return block_activations(job, kind, job.recompute);
    });
    const double bytes = blocks / job.mesh.pipeline * job.activations_away *
                         static_cast<double>(job.micro_batches());
    const double link = node.device.host_bandwidth * cluster.physics.link_efficiency;
    exposed += std::max(0.0, 2 * bytes / link - compute);
  }
  if (job.offload == Offload::kAll && !stays) {
    const double wire = 2 * held * 2 * static_cast<double>(job.micro_batches()) / rate;
    exposed += std::max(0.0, wire - compute);
  }
  return exposed;
}

}  // namespace

double deferred_share(const Job& job) {
  const model::ModelConfig& model = job.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto keys = static_cast<double>(model.kv_heads * model.head_dim);
  const double width_bytes = job.precision == Precision::kFloat32 ? 4 : 2;
  const BlockCounts blocks = blocks_of(model);
  const double bytes = sum_blocks(blocks, [&](BlockKind kind) {
    const BlockParts& parts = parts_of(kind);
    const double width = inner_width(model, kind);
    double inputs = hidden + width;
    double gradients = hidden + (model.gated_mlp ? 2 : 1) * width;
    inputs += static_cast<double>(parts.attentions) * (hidden + queries);
    gradients += static_cast<double>(parts.attentions) * (queries + 2 * keys + hidden);
    return job.micro_tokens(parts.stream) * width_bytes * (inputs + gradients) / job.mesh.tensor;
  });
  return std::min(1.0, bytes / sum_blocks(blocks, [&](BlockKind kind) {
                         return block_activations(job, kind, Recompute::kNone);
                       }));
}

PipelineTimeline pipeline_timeline(const Job& job, const Cluster& cluster) {
  PipelineTimeline result{schedule_of(job, cluster), {}};
  const Stages stages = stage_times(job, cluster, result.schedule);
  result.timeline =
      schedule::time_schedule(result.schedule, durations_of(job, cluster, result.schedule, stages));
  return result;
}

Step simulate(const Job& job, const Cluster& cluster) {
  const NodeGroup node = cluster.bottleneck();
  const auto micro_batches = static_cast<double>(job.micro_batches());
  Step step;
  const schedule::Schedule schedule =
      job.mesh.pipeline > 1 ? schedule_of(job, cluster)
                            : schedule::make_schedule(
                                  {.kind = schedule::Kind::kNaive, .ranks = 1, .micro_batches = 1});
  const Stages stages = stage_times(job, cluster, schedule);
  step.stages = stages.times;
  double compute_time = 0;  // pipeline time from the first forward to the last backward
  double busiest = 0;
  if (job.mesh.pipeline > 1) {
    const schedule::Durations durations = durations_of(job, cluster, schedule, stages);
    step.message = *std::max_element(durations.message.begin(), durations.message.end());
    const schedule::Timeline timeline = schedule::time_schedule(schedule, durations);
    compute_time = ends_for_itself(job) ? timeline.longest_span() : timeline.end;
    busiest = *std::max_element(timeline.busy.begin(), timeline.busy.end());
    step.bubble = timeline.bubble();
    step.span_bubble = timeline.span_bubble();
    step.pipeline = compute_time - busiest;
  } else {
    busiest = stages.times.front().all() * micro_batches;
    compute_time = busiest;
  }
  std::vector<PassTimes> by_rank(job.mesh.pipeline);
  std::vector<double> recompute(job.mesh.pipeline, 0);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    by_rank[schedule.rank_of_stage[stage]] += stages.times[stage];
    recompute[schedule.rank_of_stage[stage]] += stages.recompute[stage];
  }
  const auto slowest = static_cast<size_t>(
      std::max_element(
          by_rank.begin(),
          by_rank.end(),
          [](const PassTimes& a, const PassTimes& b) { return a.all() < b.all(); }) -
      by_rank.begin());
  const PassTimes& rank = by_rank[slowest];
  step.recompute = recompute[slowest] * micro_batches;
  step.tensor = (rank.forward_tensor + rank.backward_tensor) * micro_batches;
  step.compute = busiest - step.recompute - step.tensor;
  step.kernels = rank.scaled(micro_batches).kernels;

  if (job.mesh.data * job.mesh.context > 1) {
    const bool units =
        job.zero_stage >= 3 || (job.zero_stage == 2 && job.software.reduce_each_micro_batch);
    const DataCost cost = units && job.mesh.pipeline == 1
                              ? gather_units(job, cluster, node)
                              : reduce_once(job, cluster, node, rank.input + rank.weight);
    step.data = cost.exposed;
    step.slowed = cost.slowed;
  }
  // All ranks wait for the slowest: the maximum of n normal deviates grows with sqrt(2 ln n). On a
  // measured machine, the spread within a node is known, but not the spread between nodes.
  const double ranks = job.mesh.ranks();
  const double apart = node.device.measured ? std::ceil(ranks / node.devices_per_node) : ranks;
  step.waits = compute_time * cluster.physics.straggler * std::sqrt(2 * std::log(apart));
  const double together = job.mesh.ranks() == 1 ? 0 : compute_time;
  step.waits += node.wait_seconds(together);
  step.optimizer = optimizer_seconds(job, node.device);
  step.offload = offload_seconds(job, cluster, node, compute_time);
  step.rest = cluster.physics.step_seconds;
  step.step_seconds = compute_time + step.after_pipeline();
  step.tokens_per_second = job.step_tokens() / step.step_seconds;
  step.model_flops_per_device = model_flops(job) / step.step_seconds / job.mesh.ranks();
  const auto mean = [&](const auto& figure) {
    double sum = 0;
    for (const NodeGroup& group : cluster.groups) {
      sum += group.devices() * figure(group.device);
    }
    return sum / cluster.devices();
  };
  step.utilisation = step.model_flops_per_device /
                     mean([&](const Device& device) { return of_kind(job, device); });
  // Waiting devices draw about a third of their power limit.
  const double busy_share = (step.compute + step.recompute) / step.step_seconds;
  step.joules = step.step_seconds * job.mesh.ranks() *
                mean([](const Device& device) { return device.watts; }) *
                (0.35 + 0.65 * busy_share);
  return step;
}

}  // namespace lockstep::plan
