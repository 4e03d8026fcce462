// Estimates a rank's memory by kind.
#include "plan/memory/memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/memory/activations.h"
#include "plan/memory/moments.h"

namespace lockstep::plan {

double Memory::total() const {
  return parameters + gradients + optimizer + activations + working + logits + gathered + buckets +
         fragmentation + context + kept;
}

double usable_bytes(const Device& device) {
  return device.memory_bytes * 0.985;
}

namespace {

// Returns the number of parameters on one tensor rank of a stage with these blocks.
double stage_parameters(const Job& job, const BlockCounts& blocks, bool first, bool last) {
  const ParameterCounts counts = count_parameters(job.model);
  double edges = first ? counts.embedding + counts.positions : 0;
  edges += last ? counts.head : 0;
  if (last && !first && job.model.ties_head()) {
    edges += counts.embedding;  // tied head: the last stage has a copy
  }
  return (counts.of(blocks) + edges) / job.mesh.tensor;
}

// Returns the number of parameters gathered, or read from files, at a time.
double unit_parameters(const Job& job) {
  const ParameterCounts counts = count_parameters(job.model);
  return std::min(
             job.software.unit_parameters, std::max(counts.largest_block(), counts.embedding / 2)) /
         job.mesh.tensor;
}

// Returns the bytes of the gathered parameters. Frozen weights of blocks are gathered in quantized
// form.
double unit_bytes(const Job& job) {
  if (job.adapter_rank == 0) {
    return unit_parameters(job) * job.compute_bytes();
  }
  const double tensor = job.mesh.tensor;
  const double table = count_parameters(job.model).embedding / 2 * job.compute_bytes() / tensor;
  return std::min(
      job.software.unit_parameters * job.compute_bytes() / tensor,
      std::max(gathered_block_bytes(job), table));
}

// Returns the number of gathered parameters that have gradients.
double unit_gradients(const Job& job) {
  return job.adapter_rank == 0 ? unit_parameters(job) : largest_trained(job);
}

void offload_states(const Job& job, Memory& memory) {
  if (job.offload == Offload::kNone) {
    return;
  }
  if (job.offload_to == OffloadTo::kNvme && job.software.device_is_host) {
    // Buffers in transit are included in fullest_moment().
    memory.nvme += memory.optimizer;
    memory.optimizer = 0;
    if (job.offload == Offload::kAll) {
      memory.nvme += memory.parameters;
      memory.parameters = 0;
    }
    return;
  }
  if (job.offload_to == OffloadTo::kNvme) {
    // A unit's state is in host memory while it is updated, and its parameters while they are used.
    // Gradients are not stored in files.
    const double share = job.zero_stage >= 1 ? job.sharing() : 1;
    const double largest =
        std::max(unit_parameters(job), count_parameters(job.model).embedding / job.mesh.tensor);
    memory.host += largest / share * job.software.optimizer_bytes;
    memory.nvme += memory.optimizer;
    memory.optimizer = 0;
    if (job.offload == Offload::kAll) {
      memory.host +=
          2 * unit_parameters(job) / share * job.software.weight_bytes + memory.gradients;
      memory.nvme += memory.parameters;
      memory.parameters = memory.gradients = 0;
    }
    return;
  }
  if (job.software.device_is_host) {
    return;
  }
  memory.host += memory.optimizer;
  memory.optimizer = 0;
  if (job.offload == Offload::kAll) {
    memory.host += memory.parameters + memory.gradients;
    memory.parameters = memory.gradients = 0;
  }
}

// Returns the number of trained parameters: all parameters, or the adapters of the stage's blocks.
double trained_parameters(const Job& job, const BlockCounts& blocks, double parameters) {
  return job.adapter_rank > 0 ? adapter_parameters(job, blocks) / job.mesh.tensor : parameters;
}

// Returns the bytes of all parameters of a stage in gathered form.
double whole_stage_bytes(const Job& job, const BlockCounts& blocks, double parameters) {
  if (job.adapter_rank == 0) {
    return parameters * job.compute_bytes();
  }
  const double linears = linear_parameters(job.model, blocks) / job.mesh.tensor;
  return linears * job.frozen_bytes + (parameters - linears) * job.compute_bytes() +
         trained_parameters(job, blocks, parameters) * job.compute_bytes();
}

void add_states(const Job& job, const BlockCounts& blocks, double parameters, Memory& memory) {
  const Software& software = job.software;
  const double group = job.sharing();
  const double trained = trained_parameters(job, blocks, parameters);
  const double experts = expert_parameters(job.model, blocks) / job.mesh.tensor;
  // Returns how many of `numbers` elements a rank holds. From a ZeRO stage on, they are sharded
  // over a group; experts are always distributed over ranks.
  const auto held = [&](double numbers, int from_stage) {
    const double share = job.zero_stage >= from_stage ? group : 1;
    const double spread = std::min(experts, numbers);
    return (numbers - spread) / share + spread / std::max<double>(share, job.expert_ranks);
  };
  memory.parameters = held(trained, 3) * software.weight_bytes;
  memory.gradients = held(trained, 2) * job.gradient_bytes();
  memory.optimizer = held(trained, 1) * software.optimizer_bytes;
  if (job.adapter_rank > 0) {
    const double linears = linear_parameters(job.model, blocks) / job.mesh.tensor;
    memory.parameters += held(linears, 3) * job.frozen_bytes +
                         (held(parameters, 3) - held(linears, 3)) * job.compute_bytes();
    if (job.frozen_bytes < 2 && !software.device_is_host) {
      // The 16-bit matrix of the current product. On CPUs, a cache holds a slice of it.
      memory.working += 2.0 * static_cast<double>(job.model.hidden_size) *
                        static_cast<double>(job.model.intermediate_size) / job.mesh.tensor;
    }
  }
  memory.parameters += held(parameters, 3) * job.reference_bytes;
  offload_states(job, memory);
  // Each element of the state is stored by exactly one rank, regardless of the ZeRO stage.
  const double kept = job.in_memory_checkpoints * trained / (job.mesh.data * job.mesh.context) *
                      (software.weight_bytes + software.optimizer_bytes);
  (software.device_is_host ? memory.kept : memory.host) += kept;
  if (job.zero_stage >= 3 && job.mesh.pipeline > 1) {
    // In a pipeline, units stay gathered and gradients stay unsharded until the step ends.
    memory.gathered = whole_stage_bytes(job, blocks, parameters) + trained * job.reduce_bytes();
  } else if (job.zero_stage >= 3 || job.offload == Offload::kAll) {
    // The unit in use and the prefetched unit, plus a unit's gradient before its reduction.
    memory.gathered = 2 * unit_bytes(job) + unit_gradients(job) * job.reduce_bytes();
  }
}

// Returns the bytes of temporaries in a block's backward pass, without stored activations.
double temporaries(const Job& job, BlockKind kind) {
  const double width = job.compute_bytes();
  const double tokens = job.micro_tokens(parts_of(kind).stream);
  const auto hidden = static_cast<double>(job.model.hidden_size);
  const double mlp = inner_width(job.model, kind) / job.mesh.tensor;
  // Widest intermediate and its gradient.
  return tokens * width * 2 * std::max(hidden, mlp);
}

// Returns the head's memory on the last pipeline rank: the logits computed at a time, and the
// gradients of the head's input and weights.
double logits(const Job& job) {
  const Software& software = job.software;
  const double tokens = job.micro_tokens();
  const auto hidden = static_cast<double>(job.model.hidden_size);
  const double vocabulary = static_cast<double>(job.model.head_rows()) / job.mesh.tensor;
  const bool shared = job.mesh.tensor > 1 && software.shared_logit_bytes > 0;
  const double row = vocabulary * (shared ? software.shared_logit_bytes : software.logit_bytes);
  const bool is_trained = job.adapter_rank == 0;  // a frozen embedding has no gradient
  const double sum = is_trained ? vocabulary * hidden * software.head_sum_bytes : 0;
  double bytes = tokens * row;
  if (bytes > software.logit_limit) {
    const double runs = std::ceil(tokens / std::max(128.0, std::floor(software.logit_limit / row)));
    bytes = std::ceil(tokens / runs) * row + sum;
  }
  // A tied weight has the head's gradient and the sum of it and the embedding's gradient.
  const double gradients = job.model.ties_head() && job.mesh.pipeline == 1 ? 2 : 1;
  return bytes + (is_trained ? vocabulary * hidden * software.head_gradient_bytes * gradients : 0);
}

// Returns the bytes of the stream that a rank only forwards: encoder ranks forward the target, and
// decoder ranks the source unless the encoder ends on the same rank.
double passing_by(const Job& job, const BlockCounts& blocks) {
  if (job.source == 0 || blocks.count(BlockKind::kEncoderEnd) > 0) {
    return 0;
  }
  const Stream stream = blocks.count(BlockKind::kEncoder) > 0 ? Stream::kTarget : Stream::kSource;
  return job.micro_tokens(stream) * static_cast<double>(job.model.hidden_size) *
         job.compute_bytes() / (job.sequence_parallel ? job.mesh.tensor : 1);
}

void add_activations(const Job& job, const RankShare& share, StageMemory& stage) {
  Memory& memory = stage.peak;
  const BlockCounts& blocks = share.blocks;
  const double in_flight = share.in_flight;
  const auto kept = [&](BlockKind kind) { return block_activations(job, kind, job.recompute); };
  memory.activations = in_flight * (sum_blocks(blocks, kept) + passing_by(job, blocks));
  if (job.recompute != Recompute::kNone) {
    memory.working += largest_of_blocks(blocks, [&](BlockKind kind) {
      return block_activations(job, kind, Recompute::kNone) - kept(kind);
    });
  }
  if (job.offload == Offload::kAll && job.software.offloads_activations &&
      job.recompute == Recompute::kFull && job.recompute_share == 1) {
    memory.host += memory.activations;
    memory.activations = 2 * largest_of_blocks(blocks, kept);
  }
  memory.host += memory.activations * job.activations_away;
  memory.activations *= 1 - job.activations_away;
  memory.working +=
      largest_of_blocks(blocks, [&](BlockKind kind) { return temporaries(job, kind); });
  if (share.is_last) {
    memory.logits = logits(job);
  }
}

// Adds all temporary memory. Used instead of add_activations() and buckets().
void add_moment(const Job& job, const RankShare& share, StageMemory& stage) {
  const Moment moment = fullest_moment(job, share);
  Memory& memory = stage.peak;
  memory.activations = moment.activations;
  memory.working += moment.working;
  memory.logits = moment.logits;
  memory.gathered = moment.gathered;
  memory.buckets = moment.buckets;
}

// Returns memory lost to fragmentation: recomputed tensors are allocated between persistent ones.
// In the range shared by tensors of all sizes (ops/host_memory.h), the measured loss is about one
// widest tensor.
double lost_places(const Job& job, const BlockCounts& blocks) {
  if (!job.software.device_is_host || job.recompute == Recompute::kNone) {
    return 0;
  }
  return largest_of_blocks(blocks, [&](BlockKind kind) {
    return job.micro_tokens(parts_of(kind).stream) * inner_width(job.model, kind) /
           job.mesh.tensor * job.compute_bytes();
  });
}

double buckets(const Job& job, double parameters) {
  const double gradients = parameters * job.reduce_bytes();
  if (job.mesh.ranks() == 1) {
    return 0;
  }
  if (job.software.reduces_in_place) {
    // Stage 2: the buffer being filled, the one in transit (units share buffers of up to 25 MB),
    // and the embedding's buffer.
    const ParameterCounts counts = count_parameters(job.model);
    const double width = job.reduce_bytes() / job.mesh.tensor;
    const double table = counts.embedding * width;
    const double some = 2 * std::max(25e6, counts.largest_block() * width) + table;
    // The other end of the pipeline sends its gradient of a tied weight.
    const bool receives = job.model.ties_head() && job.mesh.pipeline > 1;
    return (job.zero_stage == 2 ? std::min(gradients, some) : 0) + (receives ? table : 0);
  }
  return std::min(job.software.bucket_bytes, gradients);  // no other data is sent
}

}  // namespace

std::vector<StageMemory> estimate_memory(const Job& job) {
  const std::vector<BlockCounts> blocks = rank_blocks(job);
  const int rank_of_first = rank_of_stage(job, 0);
  const int rank_of_last = rank_of_stage(job, stages_of(job) - 1);
  const std::vector<double> in_flight = micro_batches_in_flight(job);
  std::vector<StageMemory> stages;
  for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
    StageMemory stage;
    stage.stage = rank;
    stage.blocks = blocks[rank].all();
    const bool first = rank == rank_of_first;
    const bool last = rank == rank_of_last;
    stage.in_flight = in_flight[rank];
    const RankShare share{blocks[rank], first, last, in_flight[rank]};
    const double parameters = stage_parameters(job, blocks[rank], first, last);
    add_states(job, blocks[rank], parameters, stage.peak);
    Memory& memory = stage.peak;
    if (job.software.device_is_host) {
      add_moment(job, share, stage);
    } else {
      add_activations(job, share, stage);
      memory.buckets = buckets(job, parameters);
    }
    memory.fragmentation = job.software.fragmentation * (memory.activations + memory.working +
                                                         memory.logits + memory.gathered) +
                           lost_places(job, blocks[rank]);
    memory.context = job.software.context_bytes;
    stages.push_back(stage);
  }
  return stages;
}

namespace {

// Memory of the smallest device of a pipeline rank, and the device's share of host memory.
struct Room {
  double device = std::numeric_limits<double>::infinity();
  double host = std::numeric_limits<double>::infinity();
};

Room room_of(const Job& job, const Cluster& cluster, int rank) {
  const int ranks = job.mesh.data * job.mesh.context * job.mesh.tensor;
  const int first = rank * ranks;
  Room room;
  int begin = 0;
  for (const NodeGroup& group : cluster.groups) {
    const int end = begin + group.devices();
    if (first < end && first + ranks > begin) {
      room.device = std::min(room.device, usable_bytes(group.device));
      room.host = std::min(room.host, group.device.host_bytes());
    }
    begin = end;
  }
  return room;
}

}  // namespace

bool fits(const Job& job, const Cluster& cluster) {
  const std::vector<StageMemory> stages = estimate_memory(job);
  return std::all_of(stages.begin(), stages.end(), [&](const StageMemory& stage) {
    const Room room = room_of(job, cluster, static_cast<int>(stage.stage));
    return stage.peak.total() <= room.device && stage.peak.host <= room.host;
  });
}

std::vector<int64_t> most_blocks(const Job& job, const Cluster& cluster) {
  // Memory is linear in the number of blocks, except for buffers that reach their full size after a
  // few blocks.
  const int64_t layers = job.model.layers;
  const auto with = [&](int64_t blocks) {
    Job even = job;
    even.model.layers = layers * stages_of(job);  // enough blocks for all stages
    even.split.assign(static_cast<size_t>(stages_of(job)), blocks);
    return estimate_memory(even);
  };
  const std::vector<StageMemory> all = with(layers);
  const std::vector<StageMemory> one_less = with(layers - 1);
  const double own = static_cast<double>(stages_of(job)) / job.mesh.pipeline;
  std::vector<int64_t> most;
  for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
    const double bytes = all[rank].peak.total();
    const double of_block = std::max((bytes - one_less[rank].peak.total()) / own, 1.0);
    const double too_many = std::ceil((bytes - room_of(job, cluster, rank).device) / of_block);
    const double fit = static_cast<double>(layers) * own - too_many;
    most.push_back(static_cast<int64_t>(std::clamp<double>(fit, 0, static_cast<double>(layers))));
  }
  return most;
}

const StageMemory& largest(const std::vector<StageMemory>& stages) {
  return *std::max_element(
      stages.begin(), stages.end(), [](const StageMemory& a, const StageMemory& b) {
        return a.peak.total() < b.peak.total();
      });
}

}  // namespace lockstep::plan
