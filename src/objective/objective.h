// Training objectives as functions of the scores of a model's head. With L = f(l) and l the
// log-likelihoods, the gradient of L equals that of the sum of (-df/dl) * (-l) with df/dl held
// constant. An objective therefore turns scores into constant weights, and the head's weighted
// loss, which never stores the logits of all tokens, serves every objective under every plan.
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

/// Divisors of an objective's terms (tokens, rows or pairs), summed over the micro-batches and data
/// ranks of a step. One or more terms.
class Counts {
 public:
  Counts() : Counts(0.0) {}
  Counts(double count) : values_{count} {}  // NOLINT(google-explicit-constructor): one term
  explicit Counts(std::vector<double> values) : values_(std::move(values)) {}

  /// 1 if the count is zero.
  double divisor(size_t term = 0) const {
    return term < values_.size() && values_[term] > 0 ? values_[term] : 1;
  }
  /// Factor of a term's sum, so that the first term's divisor applies to all terms.
  double share(size_t term) const { return divisor(0) / divisor(term); }
  Counts& operator+=(const Counts& other);
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

/// Information from which the weights of a loss are computed.
enum class Needs {
  kNothing,      // all weights are 1
  kTargets,      // the loss is linear in the rows' scores, so the weights do not depend on them
  kTokenScores,  // scores of single tokens
  kRowScores,    // scores summed per row
  kClassScores,  // all outputs of a classifier, for rows whose target is on this rank; without
                 // gradients, for all rows
  kRowLogits,    // all outputs of a classifier, for all rows, on every rank that holds a slice of
                 // them
  kNextToken,    // the most likely token at one position instead of scores: for evaluation, without
                 // gradients
  kHeadStates,   // the inputs of the head instead of scores: for evaluation, without gradients
};

struct Weighing {
  Tensor sums;     // float64 [Objective::sums()], on the device of the scores
  Tensor weights;  // shaped as the scores, constants; undefined if gradients are disabled
};

struct Report {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual Needs needs() const = 0;
  /// Returns the counts of a micro-batch. Reads the targets, preferably on the CPU.
  virtual Counts counts(const nn::Targets& targets) const = 0;
  /// Computes the objective. A row is a document if rows contain several independently scored
  /// documents (nn::Targets::documents). The log-likelihoods are those of tokens, [B, T] (kNothing,
  /// kTokenScores); the logits of rows, float32 [B, K] (kClassScores, kRowLogits); otherwise
  /// float64 of whole rows, [B], or [B, 2] (answer, prompt) if targets.prompts is defined, and
  /// `likeliest` is undefined. (kNextToken: the most likely token at each row's first target,
  /// float64 [B]. kHeadStates: the head's input states [B, T, C] and its weight [V, C].)
  ///
  /// Returns float64 [sums()]: the loss times step.divisor(), differentiable in the
  /// log-likelihoods; this micro-batch's first count; each metric, summed over the counted items.
  /// Calls no collective. Throws Error (kInternal) if the targets lack a required tensor.
  virtual Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const = 0;
  /// Fraction of each target that training spreads over the vocabulary, if all weights are one
  /// (kNothing). Evaluation does not apply it.
  virtual double label_smoothing() const { return 0; }
  /// Names of the metrics of report(): means over the items of the first term, unless report()
  /// computes them.
  virtual std::vector<std::string> metrics() const { return {}; }

  /// Length of measure()'s result; more than 2 + metrics if report() needs additional sums.
  virtual int64_t sums() const { return 2 + static_cast<int64_t>(metrics().size()); }
  /// Returns measure() and, if gradients are enabled, the negative derivative of its first number
  /// by each score.
  Weighing weigh(const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const;
  /// Converts sums() numbers, summed over micro-batches and ranks, to a report; 0 if nothing was
  /// counted.
  virtual Report report(std::span<const double> sums) const;
};

using ObjectivePointer = std::shared_ptr<const Objective>;

}  // namespace lockstep::objective
