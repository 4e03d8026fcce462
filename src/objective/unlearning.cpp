#include <ATen/ATen.h>

#include "objective/objectives.h"
#include "objective/rows.h"
#include "ops/token_loss.h"

namespace lockstep::objective {
namespace {

/// gamma * (the mean loss of what is to be forgotten) + alpha * (-log p of a token to be kept).
class Unlearning : public Objective {
 public:
  Unlearning(double gamma, double alpha) : gamma_(gamma), alpha_(alpha) {}
  Counts counts(const nn::Targets& targets) const final {
    const auto sum_of = [&](nn::RowKind kind, const Tensor& each) {
      return (of_kind(targets, kind) * each).sum().item<double>();
    };
    return Counts(
        {sum_of(nn::RowKind::kForget, counted(targets)),
         sum_of(nn::RowKind::kRetain, targets.counts)});
  }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const final {
    const Tensor values = scores.log_likelihoods.to(at::kDouble);
    const bool are_tokens = values.dim() == 2;
    const auto rows_of = [&](nn::RowKind kind) {
      const Tensor rows = of_kind(targets, kind);
      return are_tokens ? rows.unsqueeze(1) : rows;
    };
    const Tensor forget = rows_of(nn::RowKind::kForget);
    const Tensor forgotten = (forget * losses(values, targets)).sum();
    const Tensor retained = -(rows_of(nn::RowKind::kRetain) * values).sum();
    const Tensor count =
        forget * (are_tokens ? targets.tokens.ne(ops::kIgnoredTarget) : counted(targets));
    return at::stack({gamma_ * forgotten + alpha_ * step.share(1) * retained, count.sum()});
  }

 protected:
  /// Of rows [B] or tokens [B, T] to be forgotten.
  virtual Tensor losses(const Tensor& values, const nn::Targets& targets) const = 0;
  /// [B]: what the sum of a row's is divided by.
  virtual Tensor counted(const nn::Targets& targets) const { return at::ones_like(targets.counts); }

 private:
  double gamma_, alpha_;
};

class GradientDifference final : public Unlearning {
 public:
  using Unlearning::Unlearning;
  Needs needs() const override { return Needs::kTargets; }

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& /*targets*/) const override { return rows; }
  Tensor counted(const nn::Targets& targets) const override { return targets.counts; }
};

class WeightedAscent final : public Unlearning {
 public:
  WeightedAscent(double beta, double gamma, double alpha) : Unlearning(gamma, alpha), beta_(beta) {}
  Needs needs() const override { return Needs::kTokenScores; }

 protected:
  Tensor losses(const Tensor& tokens, const nn::Targets& /*targets*/) const override {
    return (beta_ * tokens.detach()).exp() * tokens;
  }
  Tensor counted(const nn::Targets& targets) const override { return targets.counts; }

 private:
  double beta_;
};

class NegativePreference final : public Unlearning {
 public:
  NegativePreference(double beta, double gamma, double alpha)
      : Unlearning(gamma, alpha),
        beta_(beta) {}
  Needs needs() const override { return Needs::kRowScores; }

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    const Tensor& reference = needed(targets.reference, "reference scores");
    return -2 / beta_ * at::log_sigmoid(-beta_ * (rows - reference));
  }

 private:
  double beta_;
};

class SimpleNegativePreference final : public Unlearning {
 public:
  SimpleNegativePreference(double beta, double delta, double gamma, double alpha)
      : Unlearning(gamma, alpha),
        beta_(beta),
        delta_(delta) {}
  Needs needs() const override { return Needs::kRowScores; }

 protected:
  Tensor losses(const Tensor& rows, const nn::Targets& targets) const override {
    const Tensor of_token = rows / targets.counts.clamp_min(1);
    return -2 / beta_ * at::log_sigmoid(-beta_ * (of_token + delta_));
  }

 private:
  double beta_, delta_;
};

}  // namespace

ObjectivePointer gradient_ascent() {
  return gradient_difference({.gamma = 1, .alpha = 0});
}

ObjectivePointer gradient_difference(const UnlearningOptions& options) {
  return std::make_shared<GradientDifference>(options.gamma, options.alpha);
}

ObjectivePointer weighted_ascent(const UnlearningOptions& options) {
  return std::make_shared<WeightedAscent>(options.beta, options.gamma, options.alpha);
}

ObjectivePointer negative_preference(const UnlearningOptions& options) {
  return std::make_shared<NegativePreference>(options.beta, options.gamma, options.alpha);
}

ObjectivePointer simple_negative_preference(const UnlearningOptions& options) {
  return std::make_shared<SimpleNegativePreference>(
      options.beta, options.delta, options.gamma, options.alpha);
}

}  // namespace lockstep::objective
