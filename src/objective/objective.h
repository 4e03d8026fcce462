// Training objectives, which are functions of the scores of a model's head. Let L = f(l), where l
// are the log-likelihoods. The gradient of L equals that of the sum of (-df/dl) * (-l) with df/dl
// held constant. An objective therefore converts scores to constant weights. The head's weighted
// loss, which never stores the logits of all tokens, then works for every objective and every plan.
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

/// Divisors of the terms of an objective (numbers of tokens, rows or pairs), summed over the
/// micro-batches and data ranks of a step. There is at least one term.
class Counts {
 public:
  Counts() : Counts(0.0) {}
  Counts(double count) : values_{count} {}  // NOLINT(google-explicit-constructor): one term
  explicit Counts(std::vector<double> values) : values_(std::move(values)) {}

  /// Returns the count of a term, or 1 if the count is zero.
  double divisor(size_t term = 0) const {
    return term < values_.size() && values_[term] > 0 ? values_[term] : 1;
  }
  /// Returns the factor for the sum of a term, so that the divisor of the first term applies to all
  /// terms.
  double share(size_t term) const { return divisor(0) / divisor(term); }
  Counts& operator+=(const Counts& other);
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

/// Information from which the weights of the loss are computed.
enum class Needs {
  kNothing,      // all weights are 1
  kTargets,      // only the targets: the loss is linear in the scores of rows, so its weights do
                 // not depend on them
  kTokenScores,  // scores of single tokens
  kRowScores,    // scores summed per row
  kClassScores,  // all outputs of a classifier for rows whose target is on this rank; without
                 // gradients, for all rows
  kRowLogits,    // all outputs of a classifier for all rows, on all ranks that hold a slice of them
  kNextToken,    // the most likely token at one position, instead of scores; for evaluation,
                 // without gradients
  kHeadStates,   // the inputs of the head, instead of scores; for evaluation, without gradients
};

struct Weighing {
  Tensor sums;     // float64 [Objective::sums()], on the device of the scores
  Tensor weights;  // constants with the shape of the scores; undefined if gradients are disabled
};

struct Report {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual Needs needs() const = 0;
  /// Returns the counts of a micro-batch. Reads the targets, which should be on the CPU.
  virtual Counts counts(const nn::Targets& targets) const = 0;
  /// Computes the objective. If rows contain several independently scored documents
  /// (nn::Targets::documents), each document counts as a row. The log-likelihoods depend on
  /// needs(): those of tokens, [B, T] (kNothing, kTokenScores); the logits of rows, float32 [B, K]
  /// (kClassScores, kRowLogits); otherwise those of whole rows, float64 [B], or [B, 2] (answer,
  /// prompt) if targets.prompts is defined, and `likeliest` is undefined. (kNextToken: the most
  /// likely token at each row's first target, float64 [B]. kHeadStates: the head's input states [B,
  /// T, C] and its weight [V, C].)
  ///
  /// Returns float64 [sums()]: the loss times step.divisor(), which is differentiable in the
  /// log-likelihoods; the first count of this micro-batch; and each metric, summed over the counted
  /// items. Calls no collectives. Throws Error (kInternal) if the targets lack a required tensor.
  virtual Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const = 0;
  /// Returns the fraction of each target that training distributes over the vocabulary, for
  /// objectives whose weights are all one (kNothing). Evaluation does not apply it.
  virtual double label_smoothing() const { return 0; }
  /// Returns the names of the metrics of report(). A metric is a mean over the items of the first
  /// term, unless report() computes it.
  virtual std::vector<std::string> metrics() const { return {}; }

  /// Returns the length of measure()'s result: more than 2 + the number of metrics if report()
  /// requires additional sums.
  virtual int64_t sums() const { return 2 + static_cast<int64_t>(metrics().size()); }
  /// Calls measure() and returns its sums. If gradients are enabled, also returns the negative
  /// derivative of the first sum with respect to each score.
  Weighing weigh(const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const;
  /// Converts sums over micro-batches and ranks, [sums()], to a report. Values are 0 if nothing was
  /// counted.
  virtual Report report(std::span<const double> sums) const;
};

using ObjectivePointer = std::shared_ptr<const Objective>;

}  // namespace lockstep::objective
