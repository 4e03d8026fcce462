// A model under a plan: what the trainer drives. It never asks which strategies are on.
// parallelize.h makes it.
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
  double loss = 0;           // over all ranks and micro-batches
  double gradient_norm = 0;  // before clipping
  bool overflowed = false;   // float16: the gradients did, and the step will be left out
  /// What Objective::report reads; of an objective that needs no scores, zeros behind the first,
  /// but for a classifier's.
  std::vector<double> sums;
  std::optional<ExpertLoad> experts = {};  // of a mixture
};

/// Gives the counts of a step, of which other ranks may still have to tell: the call may block.
using CountsOfStep = std::function<const objective::Counts&()>;

class ParallelModel {
 public:
  /// Use parallelize. The stages have engines, whose shards the optimizer has. Every rank must
  /// call; `axes` must outlive it.
  ParallelModel(
      std::vector<ShardedModel> stages,
      OffloadedOptimizer optimizer,
      const Plan& plan,
      ParallelGroups& axes,
      objective::ObjectivePointer objective);
  ParallelModel(const ParallelModel&) = delete;
  ParallelModel& operator=(const ParallelModel&) = delete;

  /// Forward and backward passes over the rank's micro-batches, and the sum of the gradients over
  /// the ranks: the gradient of the objective, whose counts `step` are those of all data ranks and
  /// micro-batches together. Every rank must call, each with as many micro-batches; ranks of one
  /// data coordinate with the same ones. Error (numeric) naming a parameter where the loss or a
  /// gradient is NaN or infinite.
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step);
  /// The same, of counts that are on their way: they are asked for when the work of the passes has
  /// been begun, so that no device waits for them; before, where needs_counts_first().
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const CountsOfStep& step);
  /// Whether what the passes compute follows from the step's counts: those of an objective that
  /// weighs, of float16, which could not hold sums, and of a mixture's balance.
  bool needs_counts_first() const;
  /// The two halves of forward_backward, for CapturedTraining. First what the device does: float64
  /// [sums() + 1] on it, the objective's sums over all ranks, and the squares of the gradients of
  /// the first times `scale`.
  Tensor accumulate(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Then what the host makes of it.
  StepResult finish_step(const Tensor& sums, const objective::Counts& step);
  /// Clips by the norm that forward_backward found, and updates; nothing where the gradients
  /// overflowed.
  void optimizer_step(double learning_rate);

  /// As parallel::compare_replicas (replicas.h), between two steps.
  void compare_replicas() { parallel::compare_replicas(stages_); }

  /// The objective's sums, [sums()] on the CPU, over batches that the ranks of one data coordinate
  /// share: all of them must call, and the sum over axes.data_context() is the batches'. No
  /// gradient.
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// The log-likelihoods of the rows of each batch, without dropout: float64 [B] on the CPU. Ranks
  /// of one data coordinate call with the same batches, and get the same; all ranks with as many.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Of a classifier: the logits of the rows' classes, float32 [B, classes] each. Likewise.
  std::vector<Tensor> class_scores(std::span<const nn::ForwardInputs> batches);

  /// The likeliest token at each row's first target, without dropout: float64 [B] of each batch, on
  /// the CPU; what is generated is made of these. Likewise.
  std::vector<Tensor> next_tokens(std::span<const nn::ForwardInputs> batches);

  /// As EvaluationModel::head_states, for a pass without gradients.
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);

  /// Takes the adapters out of the model, or puts them back, for a pass without gradients: what
  /// objective::AdaptersOff asks for. Every rank must call.
  void set_adapters(bool are_on);

  /// The state that a checkpoint holds: weights, and in the group "optimizer" masters and moments.
  /// What other stages hold is not visited; a tied weight is visited by the first and the last one.
  void visit_state(const std::function<void(const StateSlice&)>& visit);
  /// What forward_backward summed, as this rank holds it, by the parameters' names: for tests and
  /// for verification. Nothing is owned.
  void visit_gradients(const std::function<void(const StateSlice&)>& visit);
  /// Where the optimizer has_averages(): puts them into the model, which is then what is evaluated,
  /// saved or loaded, or puts back what is trained. Returns whether it changed anything: not where
  /// it is as asked already. Every rank must call.
  bool put_averages(bool are_put);
  /// After visit_state wrote weights (a resume): nothing computed before is valid.
  void state_changed();

  /// As cacheable_model (sharded_model.h).
  const nn::LanguageModel* cacheable() const {
    return cacheable_model(stages_, plan_, axes_.mesh());
  }

  /// The stages of the pipeline that this rank holds, in order, and their engines.
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
  /// c10d's name of what gradients go over; empty: there is one rank.
  std::string carrier_of_gradients();
  /// Of this rank's memory, kept up to date by each step.
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
  int64_t optimizer_bytes_;  // on the device, when last looked at
  MemoryAccount memory_;
  LossScale loss_scale_;
  ExpertLoads expert_loads_;
  std::optional<ExpertLoad> experts_;  // of the last step
  bool overflowed_ = false;
  bool averages_are_put_ = false;
  double scale_ = 1.0;            // that the loss was multiplied by
  double gradient_factor_ = 1.0;  // what the held gradients are short of: that of the mean loss
  double gradient_scale_ = 1.0;   // that, and clipping
};

}  // namespace lockstep::parallel
