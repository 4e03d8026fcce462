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
#include "optim/optimizer.h"
#include "parallel/axes.h"
#include "parallel/context/sequence_part.h"
#include "parallel/data/data_parallel.h"
#include "parallel/plan.h"
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
};

struct StepResult {
  double loss_sum = 0;       // of all target tokens of the step, over all ranks
  double gradient_norm = 0;  // before clipping
};

class ParallelModel {
 public:
  /// Use parallelize. Every rank must call; `axes` must outlive it.
  ParallelModel(ShardedModel model, const Plan& plan, Axes& axes, const SequencePart& part);
  /// A whole model on every rank, under data parallelism alone. Every rank of `data_group` must
  /// call, with equal models.
  ParallelModel(
      std::unique_ptr<nn::LanguageModel> model, const Plan& plan, comm::Communicator& data_group);

  /// Forward and backward passes over the rank's micro-batches, and the sum of the gradients over
  /// the ranks: the gradient of (summed loss / target_tokens), where target_tokens counts all ranks
  /// and micro-batches. Every rank must call, each with as many micro-batches. Error (numeric)
  /// naming a parameter where the loss or a gradient is NaN or infinite.
  StepResult forward_backward(
      std::span<const nn::ForwardInputs> micro_batches, int64_t target_tokens);
  /// Clips by the norm that forward_backward found, and updates.
  void optimizer_step(double learning_rate);

  /// nn::LanguageModel::statistics of a batch that the ranks of one data coordinate share: all of
  /// them must call, and the sum over axes.gradients() is the batch's.
  Tensor statistics(const nn::ForwardInputs& inputs);

  /// The state that a checkpoint holds: weights, and in the group "optimizer" masters and moments.
  void visit_state(const std::function<void(const StateSlice&)>& visit);
  /// What forward_backward summed, as this rank holds it, by the parameters' names: for tests and
  /// for verification. Nothing is owned.
  void visit_gradients(const std::function<void(const StateSlice&)>& visit);
  /// After visit_state wrote weights (a resume): nothing computed before is valid.
  void state_changed();

  nn::LanguageModel& model() { return *model_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  const DataParallel& data_parallel() const { return *data_parallel_; }
  double gradient_scale() const { return gradient_scale_; }
  /// Of the whole model.
  int64_t parameters() const { return parameters_; }

 private:
  ParallelModel(
      ShardedModel model,
      const Plan& plan,
      std::unique_ptr<Axes> own,
      Axes* axes,
      const SequencePart& part);
  const mesh::Cut& cut_of(const std::string& name) const;
  std::vector<int64_t> shape_of(const std::string& name, const Tensor& part) const;
  double squared_gradient_norm() const;

  std::unique_ptr<Axes> own_axes_;
  Axes& axes_;
  std::unique_ptr<nn::LanguageModel> model_;
  ShardedParameters sharded_;
  Plan plan_;
  SequencePart part_;
  std::unique_ptr<DataParallel> data_parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<NamedParameter> frozen_;
  double gradient_scale_ = 1.0;
  int64_t parameters_ = 0;
};

}  // namespace lockstep::parallel
