// A model under a plan, as the trainer drives it, independent of the strategies in use. Created by
// parallelize.h.
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
  double loss = 0;           // mean over all ranks and micro-batches
  double gradient_norm = 0;  // before clipping
  bool overflowed = false;   // float16: gradients overflowed; the step will be skipped
  /// Input of Objective::report; if the objective needs no scores, zeros after the first element,
  /// except for a classifier's.
  std::vector<double> sums;
  std::optional<ExpertLoad> experts = {};  // set for mixtures
};

/// Returns the counts of a step, which may require data from other ranks: the call may block.
using CountsOfStep = std::function<const objective::Counts&()>;

class ParallelModel {
 public:
  /// Call parallelize instead. The stages have engines, whose shards the optimizer updates. Every
  /// rank must call; `axes` must outlive it.
  ParallelModel(
      std::vector<ShardedModel> stages,
      OffloadedOptimizer optimizer,
      const Plan& plan,
      ParallelGroups& axes,
      objective::ObjectivePointer objective);
  ParallelModel(const ParallelModel&) = delete;
  ParallelModel& operator=(const ParallelModel&) = delete;

  /// Runs forward and backward passes over the rank's micro-batches and sums the gradients over the
  /// ranks: the gradient of the objective, whose counts `step` cover all data ranks and
  /// micro-batches. Every rank must call with the same number of micro-batches; ranks of one data
  /// coordinate with the same ones. Throws Error (numeric) naming a parameter if the loss or a
  /// gradient is NaN or Inf.
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step);
  /// The same with counts that are still being exchanged: they are requested after the passes have
  /// been queued, so that no device waits for them, or before if needs_counts_first().
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const CountsOfStep& step);
  /// True if the passes depend on the step's counts: weighted objectives, float16 (which could not
  /// represent sums), and a mixture's balance loss.
  bool needs_counts_first() const;
  /// The two halves of forward_backward, for CapturedTraining. First the device's half: returns
  /// float64 [sums() + 1] on the device, the objective's sums over all ranks, and the squared norm
  /// of the gradients of the first sum times `scale`.
  Tensor accumulate(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Then the host's half.
  StepResult finish_step(const Tensor& sums, const objective::Counts& step);
  [[deprecated("use finish_step()")]] StepResult judge(
      const Tensor& sums, const objective::Counts& step) {
    return finish_step(sums, step);
  }
  /// Clips by the norm of forward_backward and updates; does nothing if the gradients overflowed.
  void optimizer_step(double learning_rate);

  /// See parallel::compare_replicas (replicas.h). Call between two steps.
  void compare_replicas() { parallel::compare_replicas(stages_); }

  /// Returns the objective's sums, [sums()] on the CPU, over batches that the ranks of one data
  /// coordinate share. All of them must call; the total is the sum over axes.data_context(). No
  /// gradient.
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// Returns the log-likelihoods of the rows of each batch, without dropout: float64 [B] on the
  /// CPU. Ranks of one data coordinate call with the same batches and get the same result; all
  /// ranks call with the same number.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the class logits of the rows, float32 [B, classes] per batch. Otherwise as
  /// row_scores().
  std::vector<Tensor> class_scores(std::span<const nn::ForwardInputs> batches);

  /// Returns the most likely token at each row's first target, without dropout: float64 [B] per
  /// batch on the CPU; used for greedy generation. Otherwise as row_scores().
  std::vector<Tensor> next_tokens(std::span<const nn::ForwardInputs> batches);

  /// Same as EvaluationModel::head_states, for a pass without gradients.
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);

  /// Disables or enables the adapters for a pass without gradients (objective::AdaptersOff). Every
  /// rank must call.
  void set_adapters(bool are_on);

  /// Visits the state of a checkpoint: weights and, in the group "optimizer", masters and moments.
  /// State of other stages is not visited; a tied weight is visited by the first and the last
  /// stage.
  void visit_state(const std::function<void(const StateSlice&)>& visit);
  /// Visits the gradients summed by forward_backward as this rank holds them, by parameter name,
  /// for tests and verification. No ownership.
  void visit_gradients(const std::function<void(const StateSlice&)>& visit);
  /// If the optimizer has_averages(): puts them into the model for evaluation, saving or loading,
  /// or restores the trained weights. Returns true if anything changed. Every rank must call.
  bool put_averages(bool are_put);
  /// Must be called after visit_state wrote weights (resume): cached results become invalid.
  void state_changed();

  /// See cacheable_model (sharded_model.h).
  const nn::LanguageModel* cacheable() const {
    return cacheable_model(stages_, plan_, axes_.mesh());
  }

  /// The pipeline stages of this rank, in order, and their engines.
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
  /// c10d's name of the backend that reduces gradients; empty for a single rank.
  std::string carrier_of_gradients();
  /// Memory of this rank, updated by each step.
  MemoryAccount& memory() { return memory_; }

 private:
  MemoryByKind held() const;
  void visit_engines(const std::function<void(DataParallel&)>& visit) const;

  Plan plan_;
  ParallelGroups& axes_;
  SequencePart part_;
  std::vector<ShardedModel> stages_;
  c10::Device device_;
  bool is_half_;
  Pipeline pipeline_;
  OffloadedOptimizer optimizer_;
  int64_t optimizer_bytes_;  // bytes on the device at the last query
  MemoryAccount memory_;
  LossScale loss_scale_;
  ExpertLoads expert_loads_;
  std::optional<ExpertLoad> experts_;  // load in the last step
  bool overflowed_ = false;
  bool averages_are_put_ = false;
  double scale_ = 1.0;            // factor of the loss
  double gradient_factor_ = 1.0;  // factor from accumulated gradients to gradients of the mean loss
  double gradient_scale_ = 1.0;   // gradient_factor_ times the clipping factor
};

}  // namespace lockstep::parallel
