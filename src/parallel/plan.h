// What a user chose of how a model is trained on a mesh: the narrow struct that parallelize()
// reads.
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

/// What a mixture's routers add to the loss (nn/routing.h).
struct RouterLosses {
  nn::Balance balance = nn::Balance::kNone;
  std::optional<double> balance_coefficient{};  // none: the model's
  double z_coefficient = 0;
};

/// Stages 2 and 3 communicate in every micro-batch, of which a pipeline has many.
enum class ZeroInPipeline { kRefuse, kAllow };

struct Plan {
  optim::OptimizerOptions optimizer = {};
  optim::RuleOptions update_rules = {};
  LossScaleOptions loss_scale = {};  // of float16
  double max_gradient_norm = 1.0;    // 0: no clipping
  int zero_stage = 0;
  /// So many neighbours among the ranks that hold the same parameters share one state, and the
  /// others hold replicas of it (hybrid sharding); 0: all share one. A divisor of their number.
  int shard_ranks = 0;
  ZeroInPipeline zero_in_pipeline = ZeroInPipeline::kRefuse;
  int64_t prefetch_units = 1;                  // gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // or until they are so many elements
  int64_t persistence_threshold = 0;           // stage 3: smaller parameters stay whole
  double bucket_megabytes = 25;
  RouterLosses router_losses = {};
  double expert_capacity_factor = 0;  // nn::ExpertCapacity; 0: no token is dropped
  /// So many neighbours among the ranks that hold the same parameters spread a mixture's experts
  /// among them; a divisor of their number.
  int expert_ranks = 1;
  /// Tokens go to spread experts in two halves, of which one computes while the other is on its
  /// way.
  bool expert_halves = false;
  /// Of gradients on the wire; none: that in which they are accumulated.
  std::optional<at::ScalarType> reduce_type{};
  bool find_unused_parameters = false;
  RecomputeOptions recompute = {};
  OptimizerOffload offload_optimizer = {};
  bool offload_parameters = false;           // stage 3: shards live in host memory
  std::filesystem::path parameter_folder{};  // stage 3: or in a file below it, one a rank
  int64_t accumulation_steps = 1;
  PipelineOptions pipeline = {};
  int64_t sequence_length = 1024;  // of most batches: the even cost of stages depends on it
  SequenceSharding sequence_sharding = SequenceSharding::kNone;  // between tensor-parallel layers
  ContextAttention context_attention = ContextAttention::kRing;
};

/// Which positions of a sequence this rank holds.
SequencePart sequence_part(const Plan& plan, const ParallelGroups& axes);

/// Error (config) where strategies of the plan do not go together on the mesh, whatever the model.
void check_plan(const Plan& plan, const mesh::Mesh& mesh);

}  // namespace lockstep::parallel
