// Captures training steps as CUDA graphs.
#include "parallel/captured_training.h"

#include <algorithm>
#include <array>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"
#include "nn/dropout_keys.h"
#include "ops/cuda_loops.h"
#include "ops/host_copies.h"

namespace lockstep::parallel {
namespace {

/// Returns the tensors of a micro-batch that the passes read on the device.
template <class Inputs>
auto read(Inputs& inputs) {
  return std::array{
      &inputs.ids,
      &inputs.token_types,
      &inputs.targets.tokens,
      &inputs.source,
      &inputs.source_mask};
}

bool alike(const nn::ForwardInputs& a, const nn::ForwardInputs& b) {
  const auto same = [](const Tensor* x, const Tensor* y) {
    return x->defined() == y->defined() && (!x->defined() || x->sizes() == y->sizes());
  };
  const auto none = [](const nn::ForwardInputs& inputs) {
    return !inputs.positions.defined() && inputs.cache == nullptr &&
           !inputs.token_samples.defined();
  };
  const auto of_a = read(a), of_b = read(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), same) && none(a) && none(b) &&
         a.training == b.training;
}

}  // namespace

std::string CapturedTraining::obstacle(ParallelModel& model) {
  const model::ModelConfig& config = model.model().config();
  const Plan& plan = model.plan();
  const bool drops = config.embedding_dropout > 0 || config.residual_dropout > 0 ||
                     config.attention_dropout > 0 || config.mlp_dropout > 0 ||
                     config.final_dropout > 0 ||
                     (config.head.classifies() && config.classifier_dropout > 0);
  if (model.mesh().data != model.mesh().ranks()) {
    return "the plan uses an axis other than data parallelism";
  }
  if (plan.offload_optimizer.device != OffloadDevice::kNone) {
    return "the optimizer state is offloaded";
  }
  if (plan.offload_parameters) {
    return "parameters are offloaded";
  }
  if (model.is_half()) {
    return "the loss scale of float16 is computed on the host";
  }
  if (plan.loss_mean == LossMean::kOfRanks) {
    return "each rank divides by its own number of targets, which the host computes";
  }
  if (config.experts.count > 0) {
    return "the host sorts tokens by expert";
  }
  if (drops && model.device().is_cuda() && ops::cuda_loops().dropout == nullptr) {
    return "this build has no dropout kernel, so random numbers would come from the host";
  }
  if (model.objective().needs() != objective::Needs::kNothing) {
    return "the objective recomputes the weights of targets in every step";
  }
  if (!model.optimizer().can_be_captured()) {
    return fmt::format(
        "the optimizer {} reads its coefficients from the host", plan.optimizer.optim);
  }
  return model.carrier_of_gradients() == "gloo" && model.device().is_cuda()
             ? "gradients are reduced over Gloo"
             : "";
}

CapturedTraining::CapturedTraining(
    ParallelModel& model, std::span<const nn::ForwardInputs> micro_batches)
    : model_(model),
      step_(
          model.device(),
          [this] { body(); },
          [this](bool captured) {
            const Tensor all = at::full({1}, captured ? 1 : 0, at::kInt);
            model_.axes().world().all_reduce(all, comm::Reduce::kMin).wait();
            return all.const_data_ptr<int>()[0] == 1;
          }) {
  const std::string reason = obstacle(model);
  if (!reason.empty()) {
    throw Error(ErrorKind::kInternal, "this step cannot be captured: " + reason);
  }
  const auto tables = std::make_shared<nn::RotaryTables>();
  for (const nn::ForwardInputs& given : micro_batches) {
    nn::ForwardInputs& kept = inputs_.emplace_back(given);
    kept.rotary_tables = tables;  // generated on the host before the capture
    kept.dropout_keys = std::make_shared<nn::DropoutKeys>(model.device());
    for (Tensor* tensor : read(kept)) {
      if (tensor->defined()) {
        *tensor = tensor->to(model.device()).clone();
      }
    }
  }
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(model.device());
  mean_ = at::ones({1}, doubles);
  sums_ = at::zeros({model.objective().sums() + 1}, doubles);
  if (const double most = model.plan().max_gradient_norm; most > 0) {
    most_ = at::full({1}, most, doubles);
  }
  numbers_ = model.optimizer().numbers(0).to(model.device()).clone();
  model.offloaded_optimizer().write_masters();
}

bool CapturedTraining::fits(std::span<const nn::ForwardInputs> micro_batches) const {
  return std::equal(
      micro_batches.begin(), micro_batches.end(), inputs_.begin(), inputs_.end(), alike);
}

void CapturedTraining::body() {
  sums_.copy_(model_.accumulate(inputs_, {}, /*scale=*/1.0));
  const at::NoGradGuard no_grad;
  const Tensor norm = sums_.narrow(0, sums_.numel() - 1, 1).sqrt().mul_(mean_);
  // Same computation and rounding as optim::clip_factor.
  const Tensor scale = most_.defined() ? most_.div(norm + 1e-6).clamp_max_(1).mul_(mean_) : mean_;
  optim::Optimizer& optimizer = model_.optimizer();
  for (int64_t shard = 0; shard < optimizer.size(); ++shard) {
    optimizer.update_by(shard, numbers_, scale);
  }
}

StepResult CapturedTraining::run(
    std::span<const nn::ForwardInputs> micro_batches,
    const objective::Counts& step,
    double learning_rate) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto from = read(micro_batches[i]);
    const auto to = read(inputs_[i]);
    const nn::ForwardInputs& given = micro_batches[i];
    if (given.training) {
      inputs_[i].dropout_keys->begin(given.seed, given.step, given.samples);
    }
    for (size_t tensor = 0; tensor < to.size(); ++tensor) {
      if (to[tensor]->defined()) {
        to[tensor]->copy_(*from[tensor]);
      }
    }
  }
  optim::Optimizer& optimizer = model_.optimizer();
  optimizer.begin_step();
  mean_.fill_(1.0 / step.divisor());
  numbers_.copy_(ops::to_device(optimizer.numbers(learning_rate), model_.device()));
  step_.run();
  model_.state_changed();
  return model_.finish_step(sums_, step);
}

}  // namespace lockstep::parallel
