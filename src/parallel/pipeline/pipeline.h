// Pipeline of a language model: holds this rank's stages and executes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "nn/language_model.h"
#include "objective/objectives.h"
#include "objective/reference.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/options.h"

namespace lockstep::parallel {

class LanguageModelStage;

/// Callbacks before and after each accumulation of a micro-batch's gradients into the parameters of
/// a model part.
struct Accumulation {
  std::function<void(bool last)> begin;
  std::function<void()> end;
  /// Queue of the model part's deferred weight gradients (apply_deferral); null: not deferred.
  std::shared_ptr<DeferredQueue> deferred = nullptr;
};

/// Options for computing the loss on the last stage.
struct LossOptions {
  objective::ObjectivePointer objective = objective::cross_entropy();
  /// Ranks that hold shards of the same sequences; null: one rank.
  comm::Communicator* sequence = nullptr;
};

class Pipeline {
 public:
  /// `parts` are this rank's model parts, one per stage in ascending order, as returned by
  /// parts_of_rank. They must outlive the pipeline. Must be called on every rank of the group; may
  /// block until all ranks have called.
  Pipeline(
      const std::vector<nn::LanguageModel*>& parts,
      const std::vector<Accumulation>& accumulations,
      const PipelineOptions& options,
      comm::Communicator& group,
      LossOptions loss = {});
  ~Pipeline();

  /// Runs forward and backward passes. Computes the gradients of scale * step.divisor() * (this
  /// rank's share of the loss). Must be called on every rank of the group with the same
  /// micro-batches. On the rank of the last stage, returns the objective's sums: float64 [sums()]
  /// on the device; only the loss sum is set if no scores are needed. Returns zeros on other ranks.
  at::Tensor forward_backward(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Returns the objective's sums over the batches, in order, on the CPU of the last stage's rank,
  /// and zeros on other ranks. Must be called on every rank of the group with the same batches.
  at::Tensor statistics(std::span<const nn::ForwardInputs> batches) {
    return statistics(batches, objective());
  }
  at::Tensor statistics(
      std::span<const nn::ForwardInputs> batches, const objective::Objective& objective);
  /// Returns the log-likelihoods of the rows of each batch, without dropout: float64 [B] on the
  /// CPU. Must be called on every rank of the group with the same batches.
  std::vector<at::Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the classifier's logits of the rows of each batch, without dropout: float32 [B,
  /// classes] on the CPU. Same calling rules as row_scores().
  std::vector<at::Tensor> class_scores(std::span<const nn::ForwardInputs> batches, int64_t classes);
  /// Returns the most likely token at each row's first target, without dropout: float64 [B] per
  /// batch on the CPU. Same calling rules as row_scores().
  std::vector<at::Tensor> next_tokens(std::span<const nn::ForwardInputs> batches);
  /// Returns the head's input of each batch, without dropout, and the head's weight on the last
  /// stage; empty on other ranks. Same calling rules as row_scores().
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);
  const objective::Objective& objective() const { return *loss_.objective; }

  /// Sets the observer that is called after each action of forward_backward.
  void set_observer(ActionObserver observer) { observer_ = std::move(observer); }
  Schedules& schedules() { return schedules_; }

 private:
  Executor& executor_of(size_t micro_batches);
  std::vector<Stage*> stages() const;
  /// Broadcasts the last stage's results of each batch, [B, row...], to the CPU of all ranks.
  std::vector<at::Tensor> of_all_stages(
      const std::vector<at::Tensor>& kept,
      std::span<const nn::ForwardInputs> batches,
      const std::vector<int64_t>& row,
      at::ScalarType type);

  comm::Communicator& group_;
  LossOptions loss_;
  Schedules schedules_;
  std::vector<std::unique_ptr<LanguageModelStage>> stages_;
  std::unique_ptr<Mailbox> mailbox_;
  // Keyed by number of micro-batches.
  std::map<size_t, std::unique_ptr<Executor>> executors_, evaluators_;
  ActionObserver observer_;
};

}  // namespace lockstep::parallel
