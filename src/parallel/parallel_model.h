// A model under a plan: what the trainer drives. It never asks which strategies are on.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/cut.h"
#include "nn/language_model.h"
#include "objective/objectives.h"
#include "optim/optimizer.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/shard_groups.h"
#include "parallel/data/shards.h"
#include "parallel/memory_account.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/plan.h"
#include "parallel/ranks/axes.h"
#include "parallel/ranks/sequence_part.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// A run of a tensor of the training state that this rank holds, for checkpoints. Names and global
/// shapes are all that a file depends on.
struct StateSlice {
  std::string file_group;      // "model" or "optimizer"
  std::string name;            // "transformer.wte.weight", "exp_avg.transformer.wte.weight"
  std::vector<int64_t> shape;  // of the whole tensor
  mesh::Cut cut;               // the part of it that this rank holds
  int64_t begin = 0;           // the first element of the part that `data` holds
  Tensor data;                 // flat, a view of the live state: may be read and written
  int64_t owned_begin = 0;     // of `data`'s elements, those that this rank writes to a checkpoint:
  int64_t owned_end = 0;       // every element of the whole tensor is owned by exactly one rank
  bool transient = false;      // `data` is there during the visit alone (state that lives in files)
};

struct StepResult {
  double loss = 0;           // over all ranks and micro-batches
  double gradient_norm = 0;  // before clipping
  bool overflowed = false;   // float16: the gradients did, and the step will be left out
  /// What Objective::report reads; of an objective that needs no scores, zeros behind the first.
  std::vector<double> sums;
};

/// The model with parameters that take no memory yet, of `type` on `device`.
std::unique_ptr<nn::LanguageModel> model_without_memory(
    const model::ModelConfig& config, at::ScalarType type, at::Device device);

class ParallelModel {
 public:
  /// Use parallelize. Every rank must call; `axes` must outlive it.
  ParallelModel(
      std::vector<ShardedModel> stages,
      const Plan& plan,
      Axes& axes,
      const SequencePart& part,
      objective::ObjectivePointer objective);
  /// A whole model, under data parallelism alone. Every rank of `data_group` must call, with equal
  /// models. With a source the values come from it, each rank asking for what it keeps alone, and
  /// the model may be one without memory; else the model holds values, and all get rank 0's.
  ParallelModel(
      std::unique_ptr<nn::LanguageModel> model,
      const Plan& plan,
      comm::Communicator& data_group,
      ParameterSource source = nullptr,
      objective::ObjectivePointer objective = objective::cross_entropy());
  ParallelModel(const ParallelModel&) = delete;
  ParallelModel& operator=(const ParallelModel&) = delete;

  /// Forward and backward passes over the rank's micro-batches, and the sum of the gradients over
  /// the ranks: the gradient of the objective, whose counts `step` are those of all data ranks and
  /// micro-batches together. Every rank must call, each with as many micro-batches; ranks of one
  /// data coordinate with the same ones. Error (numeric) naming a parameter where the loss or a
  /// gradient is NaN or infinite.
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step);
  /// The two halves of forward_backward, for CapturedTraining. First what the device does: float64
  /// [sums() + 1] on it, the objective's sums over all ranks, and the squares of the gradients of
  /// the first times `scale`.
  Tensor accumulate(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double scale);
  /// Then what the host makes of it.
  StepResult judge(const Tensor& sums, const objective::Counts& step);
  /// Clips by the norm that forward_backward found, and updates; nothing where the gradients
  /// overflowed.
  void optimizer_step(double learning_rate);

  /// The objective's sums, [sums()] on the CPU, over batches that the ranks of one data coordinate
  /// share: all of them must call, and the sum over axes.gradients() is the batches'. No gradient.
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// The log-likelihoods of the rows of each batch, without dropout: float64 [B] on the CPU. Ranks
  /// of one data coordinate call with the same batches, and get the same; all ranks with as many.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);

  /// The state that a checkpoint holds: weights, and in the group "optimizer" masters and moments.
  /// What other stages hold is not visited; a tied weight is visited by the first and the last one.
  void visit_state(const std::function<void(const StateSlice&)>& visit);
  /// What forward_backward summed, as this rank holds it, by the parameters' names: for tests and
  /// for verification. Nothing is owned.
  void visit_gradients(const std::function<void(const StateSlice&)>& visit);
  /// After visit_state wrote weights (a resume): nothing computed before is valid.
  void state_changed();

  /// The stages of the pipeline that this rank holds, in order, and their engines.
  size_t stages() const { return stages_.size(); }
  nn::LanguageModel& model(size_t stage = 0) { return *stages_.at(stage).model; }
  DataParallel& data_parallel(size_t stage = 0) { return *stages_.at(stage).engine; }
  Pipeline& pipeline() { return *pipeline_; }
  const objective::Objective& objective() const { return pipeline_->objective(); }
  optim::Optimizer& optimizer() { return optimizer_.optimizer(); }
  OffloadedOptimizer& offloaded_optimizer() { return optimizer_; }
  LossScale& loss_scale() { return loss_scale_; }
  double gradient_scale() const { return gradient_scale_; }
  const Plan& plan() const { return plan_; }
  const mesh::Mesh& mesh() const { return axes_.mesh(); }
  Axes& axes() { return axes_; }
  c10::Device device() const { return device_; }
  bool is_half() const { return is_half_; }
  /// c10d's name of what gradients go over; empty: there is one rank.
  std::string carrier_of_gradients();
  /// Of this rank's memory, kept up to date by each step.
  MemoryAccount& memory() { return *memory_; }

 private:
  struct HeldStage {
    std::unique_ptr<nn::LanguageModel> model;
    ShardedParameters sharded;
    std::unique_ptr<DataParallel> engine;
    std::shared_ptr<DeferredQueue> deferred;  // where the schedule puts weight gradients off

    const mesh::Cut& cut_of(const std::string& name) const;
    /// Of the whole tensor of which this rank holds a part of the shape `part`.
    std::vector<int64_t> shape_of(const std::string& name, const std::vector<int64_t>& part) const;
  };

  ParallelModel(
      std::vector<ShardedModel> stages,
      const Plan& plan,
      std::unique_ptr<Axes> own,
      Axes* axes,
      const SequencePart& part,
      objective::ObjectivePointer objective);
  HeldStage make_stage(ShardedModel model);
  /// What a stage's parameters are of the model's, over the tensor ranks.
  PartsOfParameters parts_of(const HeldStage& stage);
  /// Of what each of the ranks that hold a part of a parameter has whole: which copy is this
  /// rank's.
  mesh::Cut copy_of_whole(const HeldStage& stage, const std::string& parameter) const;
  MemoryByKind held() const;
  /// Lets the head make the vocabulary's gradient where it is summed.
  void lend_place(HeldStage& stage, const std::vector<ParameterUnit>& units);
  /// Of all summed gradients, each element once; [1] float64 on the device.
  Tensor squared_gradients();
  /// Adds up the gradients of the tied weight's two copies.
  void sum_tied();
  [[noreturn]] void throw_not_finite(double loss, double norm);
  void visit_stage(
      HeldStage& stage, int64_t& shard, const std::function<void(const StateSlice&)>& visit);

  std::unique_ptr<Axes> own_axes_;
  Axes& axes_;
  Plan plan_;
  SequencePart part_;
  ShardGroups groups_;
  c10::Device device_ = c10::Device(c10::kCPU);
  std::vector<HeldStage> stages_;
  std::unique_ptr<Pipeline> pipeline_;
  OffloadedOptimizer optimizer_;
  int64_t optimizer_bytes_ = 0;  // on the device, when last looked at
  std::unique_ptr<MemoryAccount> memory_;
  LossScale loss_scale_;
  bool overflowed_ = false;
  bool is_half_ = false;
  size_t micro_batches_ = 0;      // of this step
  double scale_ = 1.0;            // that the loss was multiplied by
  double gradient_factor_ = 1.0;  // what the held gradients are short of: that of the mean loss
  double gradient_scale_ = 1.0;   // that, and clipping
};

}  // namespace lockstep::parallel
