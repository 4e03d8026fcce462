// Explains why a plan was chosen.
#include <algorithm>

#include "base/format.h"
#include "plan/search.h"

namespace lockstep::plan {

namespace {

// Returns a job with the same model on one device, with micro-batch size 1 and no memory savings.
Job alone(const Job& job) {
  Job one = job;
  one.mesh = {};
  one.zero_stage = 0;
  one.recompute = Recompute::kNone;
  one.recompute_share = 1;
  one.offload = Offload::kNone;
  one.micro_batch = 1;
  one.global_batch = 1;
  one.sequence_parallel = false;
  one.schedule = schedule::Kind::kOneFOneB;
  one.virtual_stages = 1;
  one.split.clear();
  return one;
}

// Returns the bytes of the largest layer's states and activations on one device.
double largest_layer_bytes(const Job& one) {
  const ParameterCounts counts = count_parameters(one.model);
  const Memory memory = largest(estimate_memory(one)).peak;
  const double states = memory.parameters + memory.gradients + memory.optimizer;
  return states * std::max(counts.largest_block(), counts.embedding) / counts.total() +
         memory.activations / static_cast<double>(one.model.layers) + memory.working;
}

std::string gigabytes(double bytes) {
  return fmt::format("{:.1f} GB", bytes / 1e9);
}

std::string size_reason(const Job& job, const SearchRequest& request, Place place) {
  const double room = usable_bytes(request.cluster.slowest().device);
  const Job one = alone(job);
  const double needed = largest(estimate_memory(one)).peak.total();
  if (needed <= room) {
    const bool is_whole = job.mesh.tensor * job.mesh.pipeline * job.mesh.context == 1;
    const bool is_asked = request.data || request.tensor || request.pipeline || request.context;
    return fmt::format(
        "fits on one device ({} of {}){}",
        gigabytes(needed),
        gigabytes(room),
        is_whole                 ? ": only data parallelism"
        : is_asked               ? ", and is split as requested"
        : place == Place::kFirst ? ", but splitting it is faster"
                                 : ", but is split");
  }
  return fmt::format(
      "does not fit on one device ({} of {}){}",
      gigabytes(needed),
      gigabytes(room),
      largest_layer_bytes(one) > room ? ", nor does its largest layer"
                                      : "; its largest layer does");
}

std::string pipeline_reason(const Job& job, const Cluster& cluster) {
  const int of_rank = job.mesh.data * job.mesh.context * job.mesh.tensor;
  int within = 0;
  for (int rank = 0; rank + 1 < job.mesh.pipeline; ++rank) {
    const int last = (rank + 2) * of_rank - 1;
    within += cluster.node_of(rank * of_rank) == cluster.node_of(last) ? 1 : 0;
  }
  return within + 1 == job.mesh.pipeline ? "; pipeline within the node's fast links"
         : within == 0                   ? "; pipeline over the slow links between nodes"
                       : "; pipeline within nodes and over the slow links between";
}

}  // namespace

std::string reason_of(const Job& job, const SearchRequest& request, Place place) {
  const Cluster& cluster = request.cluster;
  std::string text = size_reason(job, request, place);
  if (job.zero_stage > 0 && job.sharing() > 1) {
    text += job.shard_ranks > 0 && job.shard_ranks < job.mesh.data * job.mesh.context
                ? fmt::format("; states sharded over groups of {} ranks", job.shard_ranks)
                : fmt::format("; states sharded over {:.0f} ranks", job.sharing());
    text += fmt::format(" (zero {})", job.zero_stage);
  }
  if (job.mesh.tensor > 1) {
    text += cluster.common_node_size() % job.mesh.tensor == 0
                ? "; tensor within the node's fast links"
                : "; tensor over the slow links between nodes";
  }
  if (job.mesh.context > 1) {
    text += fmt::format(
        "; {} of {} tokens of a sequence per rank",
        job.data_length() / job.mesh.context,
        job.data_length());
  }
  if (job.mesh.pipeline > 1) {
    text += pipeline_reason(job, cluster);
  }
  if (job.recompute != Recompute::kNone) {
    text += request.recompute ? "; recomputes, as requested" : "; recomputes to save memory";
  }
  if (job.offload != Offload::kNone) {
    text += job.offload == Offload::kAll ? "; states in host memory" : "; optimizer in host memory";
    text += request.offload ? ", as asked" : " to save memory";
  }
  return text;
}

}  // namespace lockstep::plan
