// The user's parallelism settings, as used by parallelize().
#pragma once

#include <filesystem>
#include <optional>

#include <c10/core/ScalarType.h>

#include "mesh/mesh.h"
#include "nn/routing.h"
#include "optim/optimizer.h"
#include "parallel/context/context_attention.h"
#include "parallel/loss_scale.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/pipeline/options.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"
#include "parallel/recompute/recompute.h"
#include "parallel/tensor/sequence_sharding.h"

namespace lockstep::parallel {

/// Settings of the router losses of a mixture-of-experts model (nn/routing.h).
struct RouterLosses {
  nn::Balance balance = nn::Balance::kNone;
  std::optional<double> balance_coefficient{};  // nullopt: use the model's configuration
  double z_coefficient = 0;
};

/// Controls whether ZeRO stages 2 and 3 may be combined with a pipeline. Both communicate in every
/// micro-batch, and a pipeline has many micro-batches.
enum class ZeroInPipeline { kRefuse, kAllow };

/// Weights of the targets in the loss. kOfStep: the mean over all targets of the step. kOfRanks:
/// the mean over the data-parallel ranks that have targets, of each rank's mean over its targets.
/// Only for objectives with one count.
enum class LossMean { kOfStep, kOfRanks };

struct Plan {
  optim::OptimizerOptions optimizer = {};
  optim::RuleOptions update_rules = {};
  LossScaleOptions loss_scale = {};  // only used for float16
  LossMean loss_mean = LossMean::kOfStep;
  double max_gradient_norm = 1.0;  // 0: no clipping
  int zero_stage = 0;
  /// Hybrid sharding: number of neighboring ranks that share one copy of the training state;
  /// further groups hold replicas. Must divide the number of ranks that hold the same parameters.
  /// 0: all of these ranks share one copy.
  int shard_ranks = 0;
  ZeroInPipeline zero_in_pipeline = ZeroInPipeline::kRefuse;
  int64_t prefetch_units = 1;                  // number of units that are gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // prefetch limit in elements instead of units
  int64_t persistence_threshold = 0;           // stage 3: smaller parameters are not sharded
  double bucket_megabytes = 25;
  RouterLosses router_losses = {};
  double expert_capacity_factor = 0;  // see nn::ExpertCapacity; 0: no tokens are dropped
  /// Number of neighboring ranks over which the experts of a mixture are distributed. Must divide
  /// the number of ranks that hold the same parameters.
  int expert_ranks = 1;
  /// Exchange tokens with distributed experts in two halves, so that one half is computed while the
  /// other is sent.
  bool expert_halves = false;
  /// Type in which gradients are sent; nullopt: the accumulation type.
  std::optional<at::ScalarType> reduce_type{};
  bool find_unused_parameters = false;
  RecomputeOptions recompute = {};
  OptimizerOffload offload_optimizer = {};
  bool offload_parameters = false;           // stage 3: keep parameter shards in host memory
  std::filesystem::path parameter_folder{};  // stage 3: folder of the files that hold the parameter
                                             // shards, one per rank
  int64_t accumulation_steps = 1;
  PipelineOptions pipeline = {};
  int64_t sequence_length = 1024;  // typical sequence length, used to balance the cost of stages
  SequenceSharding sequence_sharding = SequenceSharding::kNone;  // sharding of activations along
                                                                 // the sequence
  ContextAttention context_attention = ContextAttention::kRing;
};

/// Returns the positions of a sequence that this rank holds.
SequencePart sequence_part(const Plan& plan, const ParallelGroups& axes);

/// Throws Error (config) if the plan combines strategies that are incompatible on this mesh for
/// every model.
void check_plan(const Plan& plan, const mesh::Mesh& mesh);

}  // namespace lockstep::parallel
