// What a model is trained for, as a function of the scores of its head. With L = f(l) and l the
// log-likelihoods, the gradient of L is that of the sum of (-df/dl) * (-l) with df/dl held
// constant: so an objective turns scores into constant weights, and the head's weighted loss, which
// never holds the logits of all tokens, serves every objective under every plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/targets.h"

namespace lockstep::objective {

using at::Tensor;

/// What the terms of an objective are divided by, summed over the micro-batches and the data ranks
/// of a step: tokens, rows, pairs. Of one term or more.
class Counts {
 public:
  Counts() : Counts(0.0) {}
  Counts(double count) : values_{count} {}  // NOLINT(google-explicit-constructor): of one term
  explicit Counts(std::vector<double> values) : values_(std::move(values)) {}

  /// 1 where there is nothing to be divided.
  double divisor(size_t term = 0) const {
    return term < values_.size() && values_[term] > 0 ? values_[term] : 1;
  }
  /// What a term's sum is multiplied by, so that the first term's divisor serves them all.
  double share(size_t term) const { return divisor(0) / divisor(term); }
  Counts& operator+=(const Counts& other);
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

/// What the weights of a loss follow from.
enum class Needs {
  kNothing,      // all are one
  kTargets,      // the loss is linear in the rows' scores: weights are the same whatever these are
  kTokenScores,  // the scores of single tokens
  kRowScores,    // those of rows
  kClassScores,  // of a classifier's rows, all outputs': of those whose target is here. Without
                 // gradients the others' are there too
  kRowLogits,    // the same of all rows, on every rank that has a part of them
  kNextToken,    // no scores, but the likeliest token of one position: for evaluation, without
                 // gradients
  kHeadStates,   // no scores, but what they are made of: for evaluation, without gradients
};

struct Weighing {
  Tensor sums;     // float64 [Objective::sums()], on the device of the scores
  Tensor weights;  // like the scores, constants; undefined where gradients are off
};

struct Report {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual Needs needs() const = 0;
  /// Of a micro-batch. Reads the targets, which are best on the CPU.
  virtual Counts counts(const nn::Targets& targets) const = 0;
  /// The objective itself. A row is a document, where rows hold several that are judged one by one
  /// (nn::Targets::documents). Log-likelihoods are those of tokens [B, T] (kNothing, kTokenScores),
  /// the logits of rows, float32 [B, K] (kClassScores, kRowLogits), else float64 of whole rows,
  /// [B], or [B, 2] where targets.prompts are told apart (the answer's, the prompt's), and
  /// `likeliest` undefined. (kNextToken: of each row the likeliest token,
  /// float64 [B], at its first target. kHeadStates: the states [B, T, C] that the head reads, and
  /// its weight [V, C].) Returns float64 [sums()]: first the loss times step.divisor(),
  /// differentiable in the log-likelihoods; then this micro-batch's first count; then each metric,
  /// summed over what is counted. Calls no collective. Error (kInternal): targets without what it
  /// reads.
  virtual Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const = 0;
  /// Where all weights are one (kNothing): the share of each target that training spreads over the
  /// vocabulary. Evaluations measure without it.
  virtual double label_smoothing() const { return 0; }
  /// The names of the metrics of report(): means over what the first term counts, where it does not
  /// make them itself.
  virtual std::vector<std::string> metrics() const { return {}; }

  /// How many numbers measure() returns: more than the metrics, where report() needs them.
  virtual int64_t sums() const { return 2 + static_cast<int64_t>(metrics().size()); }
  /// measure(), and where gradients are on minus the derivative of its first number by each score.
  Weighing weigh(const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const;
  /// Of sums() numbers added up over micro-batches and ranks; 0 where nothing was counted.
  virtual Report report(std::span<const double> sums) const;
};

using ObjectivePointer = std::shared_ptr<const Objective>;

}  // namespace lockstep::objective
