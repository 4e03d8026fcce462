// The user's parallelism choices, as read by parallelize().
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

/// Router losses of a mixture (nn/routing.h).
struct RouterLosses {
  nn::Balance balance = nn::Balance::kNone;
  std::optional<double> balance_coefficient{};  // nullopt: as in the model's configuration
  double z_coefficient = 0;
};

/// ZeRO stages 2 and 3 communicate in every micro-batch, and a pipeline has many.
enum class ZeroInPipeline { kRefuse, kAllow };

struct Plan {
  optim::OptimizerOptions optimizer = {};
  optim::RuleOptions update_rules = {};
  LossScaleOptions loss_scale = {};  // used for float16
  double max_gradient_norm = 1.0;    // 0: no clipping
  int zero_stage = 0;
  /// Hybrid sharding: number of neighboring ranks, among those that hold the same parameters, that
  /// share one state; other ranks hold replicas. 0: all share one. Must divide their number.
  int shard_ranks = 0;
  ZeroInPipeline zero_in_pipeline = ZeroInPipeline::kRefuse;
  int64_t prefetch_units = 1;                  // units gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // or by number of elements instead of units
  int64_t persistence_threshold = 0;           // stage 3: smaller parameters stay whole
  double bucket_megabytes = 25;
  RouterLosses router_losses = {};
  double expert_capacity_factor = 0;  // nn::ExpertCapacity; 0: no token is dropped
  /// Number of neighboring ranks, among those that hold the same parameters, over which a mixture's
  /// experts are distributed. Must divide their number.
  int expert_ranks = 1;
  /// Send tokens to distributed experts in two halves: one computes while the other is in transit.
  bool expert_halves = false;
  /// Type of gradients in messages; nullopt: the accumulation type.
  std::optional<at::ScalarType> reduce_type{};
  bool find_unused_parameters = false;
  RecomputeOptions recompute = {};
  OptimizerOffload offload_optimizer = {};
  bool offload_parameters = false;           // stage 3: shards are in host memory
  std::filesystem::path parameter_folder{};  // stage 3: folder of shard files, one per rank
  int64_t accumulation_steps = 1;
  PipelineOptions pipeline = {};
  int64_t sequence_length = 1024;  // typical length of batches, for balancing the cost of stages
  SequenceSharding sequence_sharding = SequenceSharding::kNone;  // of activations
  ContextAttention context_attention = ContextAttention::kRing;
};

/// Returns this rank's positions of a sequence.
SequencePart sequence_part(const Plan& plan, const ParallelGroups& axes);

/// Throws Error (config) if strategies of the plan are incompatible on the mesh for any model.
void check_plan(const Plan& plan, const mesh::Mesh& mesh);

}  // namespace lockstep::parallel
