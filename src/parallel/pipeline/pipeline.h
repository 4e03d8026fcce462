// Pipeline of a language model: this rank's stages and their execution.
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

/// Callbacks around each accumulation of a micro-batch's gradients into a part's parameters.
struct Accumulation {
  std::function<void(bool last)> begin;
  std::function<void()> end;
  /// Queue for the part's deferred weight gradients (apply_deferral); null: not deferred.
  std::shared_ptr<DeferredQueue> deferred = nullptr;
};

/// Loss computation on the last stage.
struct LossOptions {
  objective::ObjectivePointer objective = objective::cross_entropy();
  /// The ranks that hold shards of the same sequences; null: one rank.
  comm::Communicator* sequence = nullptr;
};

class Pipeline {
 public:
  /// `parts` are this rank's, one per stage, ascending, as returned by parts_of_rank; they outlive
  /// the pipeline. Every rank of the group must call; may block until all have.
  Pipeline(
      const std::vector<nn::LanguageModel*>& parts,
      const std::vector<Accumulation>& accumulations,
      const PipelineOptions& options,
      comm::Communicator& group,
      LossOptions loss = {});
  ~Pipeline();

  /// Runs forward and backward passes; gradients are those of scale * step.divisor() * (this rank's
  /// share of the loss). Every rank of the group must call with the same micro-batches. Returns the
  /// objective's sums, float64 [sums()] on the device, on the rank of the last stage (only the
  /// loss's if no scores are needed); zeros elsewhere.
  at::Tensor forward_backward(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Returns the objective's sums over the batches, in order, on the CPU of the last stage's rank;
  /// zeros elsewhere. Every rank of the group must call with the same batches.
  at::Tensor statistics(std::span<const nn::ForwardInputs> batches) {
    return statistics(batches, objective());
  }
  at::Tensor statistics(
      std::span<const nn::ForwardInputs> batches, const objective::Objective& objective);
  /// Returns the log-likelihoods of the rows of each batch, without dropout: float64 [B] on the
  /// CPU. Every rank of the group must call with the same batches.
  std::vector<at::Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Classifier logits of the rows of each batch, without dropout: float32 [B, classes] on the CPU.
  /// As above.
  std::vector<at::Tensor> class_scores(std::span<const nn::ForwardInputs> batches, int64_t classes);
  /// The most likely token at each row's first target of each batch, without dropout: float64 [B]
  /// on the CPU. As above.
  std::vector<at::Tensor> next_tokens(std::span<const nn::ForwardInputs> batches);
  /// The head's input of each batch, without dropout, and the head's weight, on the last stage;
  /// nothing elsewhere. As above.
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);
  const objective::Objective& objective() const { return *loss_.objective; }

  /// Observes the actions of forward_backward as they end.
  void set_observer(ActionObserver observer) { observer_ = std::move(observer); }
  Schedules& schedules() { return schedules_; }

 private:
  Executor& executor_of(size_t micro_batches);
  std::vector<Stage*> stages() const;
  /// Broadcasts the last stage's results of each batch, [B, row...], to the CPU of every rank.
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
  // By number of micro-batches.
  std::map<size_t, std::unique_ptr<Executor>> executors_, evaluators_;
  ActionObserver observer_;
};

}  // namespace lockstep::parallel
