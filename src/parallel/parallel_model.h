// A model under a parallelism plan. The trainer uses this interface regardless of the strategies in
// the plan. Created by parallelize.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "objective/objectives.h"
#include "parallel/data/shard_groups.h"
#include "parallel/expert_load.h"
#include "parallel/memory_account.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/plan.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"
#include "parallel/replicas.h"
#include "parallel/sharded_model.h"
#include "parallel/state.h"

namespace lockstep::parallel {

struct StepResult {
  double loss = 0;           // mean over all ranks and micro-batches, as Plan::loss_mean defines it
  double gradient_norm = 0;  // before clipping
  bool overflowed = false;   // float16: gradients overflowed and the optimizer step will be skipped
  /// Input of Objective::report. If the objective needs no scores, all elements after the first are
  /// 0; classifiers always fill them.
  std::vector<double> sums;
  std::optional<ExpertLoad> experts = {};  // set for mixtures of experts
};

/// Returns the counts of a step. May block while it waits for data from other ranks.
using CountsOfStep = std::function<const objective::Counts&()>;

class ParallelModel {
 public:
  /// Use parallelize() to construct one. The stages must have engines, and the optimizer updates
  /// the engines' shards. Must be called on every rank. `axes` must outlive the model.
  ParallelModel(
      std::vector<ShardedModel> stages,
      OffloadedOptimizer optimizer,
      const Plan& plan,
      ParallelGroups& axes,
      objective::ObjectivePointer objective);
  ParallelModel(const ParallelModel&) = delete;
  ParallelModel& operator=(const ParallelModel&) = delete;

  /// Runs forward and backward passes over this rank's micro-batches and sums the gradients of the
  /// objective over the ranks. `step` holds the objective's counts over all data ranks and
  /// micro-batches; with LossMean::kOfRanks, the counts of this rank's data coordinate times the
  /// number of data coordinates that have targets. Must be called on every rank with the same
  /// number of micro-batches, and with the same micro-batches on all ranks of a data coordinate.
  /// Throws Error (numeric) that names a parameter if the loss or a gradient is NaN or Inf.
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step);
  /// Overload for counts that are still being exchanged. They are requested after the passes have
  /// been queued, so that the device does not wait for them, or before the passes if
  /// needs_counts_first().
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const CountsOfStep& step);
  /// Returns true if the passes depend on the step's counts: with weighted objectives, with float16
  /// (which cannot represent unnormalized sums), with a mixture's balance loss, and if ranks have
  /// different counts (LossMean::kOfRanks).
  bool needs_counts_first() const;
  /// Device part of forward_backward, used by CapturedTraining. Returns float64 [sums() + 1] on the
  /// device: the objective's sums over all ranks, then the squared norm of the gradient of the
  /// first sum, which is scaled by `scale`.
  Tensor accumulate(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Host part of forward_backward, which follows accumulate().
  StepResult finish_step(const Tensor& sums, const objective::Counts& step);
  [[deprecated("use finish_step()")]] StepResult judge(
      const Tensor& sums, const objective::Counts& step) {
    return finish_step(sums, step);
  }
  /// Clips the gradients by the norm that forward_backward computed and updates the parameters.
  /// Does nothing if the gradients overflowed.
  void optimizer_step(double learning_rate);

  /// See parallel::compare_replicas (replicas.h). Call it between two steps.
  void compare_replicas() { parallel::compare_replicas(stages_); }

  /// Returns the objective's sums over these batches: [sums()] on the CPU, without gradients. Must
  /// be called on every rank of a data coordinate with the same batches. To get the total, sum the
  /// result over axes.data_context().
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// Returns the log-likelihoods of the rows of each batch, without dropout: float64 [B] on the
  /// CPU. Must be called on every rank with the same number of batches, and with the same batches
  /// on all ranks of a data coordinate, which get the same result.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the class logits of the rows of each batch: float32 [B, classes]. See row_scores() for
  /// the calling rules.
  std::vector<Tensor> class_scores(std::span<const nn::ForwardInputs> batches);

  /// Returns the most likely token at each row's first target, without dropout: float64 [B] per
  /// batch on the CPU. Used for greedy generation. See row_scores() for the calling rules.
  std::vector<Tensor> next_tokens(std::span<const nn::ForwardInputs> batches);

  /// Same as EvaluationModel::head_states; runs without gradients.
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);

  /// Enables or disables the adapters for a pass without gradients (objective::AdaptersOff). Must
  /// be called on every rank.
  void set_adapters(bool are_on);

  /// Visits the state that checkpoints contain: weights, and master weights and moments in the
  /// group "optimizer". Visits only the state of this rank's stages. A tied weight is visited on
  /// the first and on the last stage.
  void visit_state(const std::function<void(const StateSlice&)>& visit);
  /// Visits the slices of the gradients that forward_backward summed on this rank, by parameter
  /// name. Used by tests and verification; the ownership fields are not set.
  void visit_gradients(const std::function<void(const StateSlice&)>& visit);
  /// If the optimizer has_averages(): puts the averaged weights into the model for evaluation,
  /// saving or loading, or restores the trained weights. Returns true if the weights changed. Must
  /// be called on every rank.
  bool put_averages(bool are_put);
  /// Invalidates cached results. Must be called after visit_state has written weights (on resume).
  void state_changed();

  /// See cacheable_model (sharded_model.h).
  const nn::LanguageModel* cacheable() const {
    return cacheable_model(stages_, plan_, axes_.mesh());
  }

  /// This rank's pipeline stages, in order, and their engines.
  size_t stages() const { return stages_.size(); }
  nn::LanguageModel& model(size_t stage = 0) { return *stages_.at(stage).model; }
  DataParallel& data_parallel(size_t stage = 0) { return *stages_.at(stage).engine; }
  Pipeline& pipeline() { return pipeline_; }
  const objective::Objective& objective() const { return pipeline_.objective(); }
  optim::Optimizer& optimizer() { return optimizer_.optimizer(); }
  OffloadedOptimizer& offloaded_optimizer() { return optimizer_; }
  LossScale& loss_scale() { return loss_scale_; }
  double gradient_scale() const { return gradient_scale_; }
  const Plan& plan() const { return plan_; }
  const mesh::Mesh& mesh() const { return axes_.mesh(); }
  ParallelGroups& axes() { return axes_; }
  c10::Device device() const { return device_; }
  bool is_half() const { return is_half_; }
  /// Returns c10d's name of the backend that reduces gradients; empty for a single rank.
  std::string carrier_of_gradients();
  /// Memory use of this rank, updated by each step.
  MemoryAccount& memory() { return memory_; }

 private:
  MemoryByKind held() const;
  void visit_engines(const std::function<void(DataParallel&)>& visit) const;
  bool averages_ranks() const { return plan_.loss_mean == LossMean::kOfRanks; }

  Plan plan_;
  ParallelGroups& axes_;
  SequencePart part_;
  std::vector<ShardedModel> stages_;
  c10::Device device_;
  bool is_half_;
  Pipeline pipeline_;
  OffloadedOptimizer optimizer_;
  int64_t optimizer_bytes_;  // optimizer state on the device at the last query, in bytes
  MemoryAccount memory_;
  LossScale loss_scale_;
  ExpertLoads expert_loads_;
  std::optional<ExpertLoad> experts_;  // expert load in the last step
  bool overflowed_ = false;
  bool averages_are_put_ = false;
  double scale_ = 1.0;            // factor of the loss
  double gradient_factor_ = 1.0;  // converts accumulated gradients to gradients of the mean loss
  double gradient_scale_ = 1.0;   // gradient_factor_ times the clipping factor
};

}  // namespace lockstep::parallel
