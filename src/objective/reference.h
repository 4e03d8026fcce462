// Reference models of objectives. They are represented by the scores that they assign to rows.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/forward_context.h"
#include "objective/objective.h"

namespace lockstep::objective {

/// Returns the log-likelihoods of each micro-batch's rows, [B] float64 on the CPU, without dropout
/// (parallel::ParallelModel::row_scores).
using RowScorer = std::function<std::vector<Tensor>(std::span<const nn::ForwardInputs>)>;

class Reference {
 public:
  virtual ~Reference() = default;
  /// Sets targets.reference (or the targets that the derived class documents) in micro-batches of
  /// whole sequences. Ranks with the same data coordinate must pass the same micro-batches. If a
  /// model is run, all ranks must pass the same number of micro-batches.
  virtual void refer(std::span<nn::ForwardInputs> micro_batches) = 0;
};

/// Scores of one model at one point in time. They are computed once and stored by a hash of the
/// row's tokens up to the last target. Under every plan, only one model is in memory.
class StoredScores final : public Reference {
 public:
  /// Scores the rows and stores the results. The calling rules are those of refer().
  void store(std::span<const nn::ForwardInputs> micro_batches, const RowScorer& scorer);
  /// Rows of the retain set have no stored scores. Throws Error (kInternal) if any other row was
  /// not stored.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

  size_t size() const { return scores_.size(); }
  /// Returns all scores, one per line, for files and for other ranks whose rows may later be
  /// assigned to this rank.
  std::string text() const;
  /// Adds scores in the format of text(). Throws Error (kData) if the format is invalid.
  void add(std::string_view text);

 private:
  std::map<std::string, double> scores_;  // keyed by hash
};

/// Uses the trained model with its adapters disabled as the reference. It is scored in each step
/// (parallel::ParallelModel::set_adapters).
class AdaptersOff final : public Reference {
 public:
  /// `set_adapters(false)` disables the adapters, `set_adapters(true)` enables them.
  AdaptersOff(RowScorer scorer, std::function<void(bool on)> set_adapters)
      : scorer_(std::move(scorer)),
        set_adapters_(std::move(set_adapters)) {}
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  RowScorer scorer_;
  std::function<void(bool on)> set_adapters_;
};

/// Inputs of the head for micro-batches, [B, T, C] for this rank's positions, and the head's
/// weight. Empty if another rank has the head.
struct HeadStates {
  std::vector<Tensor> states;
  Tensor vocabulary;
};
using StateReader = std::function<HeadStates(std::span<const nn::ForwardInputs>)>;

/// A second model that provides target distributions (nn::Distributions). `reader` runs it without
/// dropout (parallel::EvaluationModel::head_states).
class FrozenModel final : public Reference {
 public:
  explicit FrozenModel(StateReader reader) : reader_(std::move(reader)) {}
  /// Sets the states and the vocabulary of targets.distributions in micro-batches that have such
  /// positions. The calling rules are those of Reference::refer.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  StateReader reader_;
};

/// Target states for a head that returns states: `target` [C] at all positions of the forget set;
/// for the retain set, the states that the reference `kept` returns (null: no retain set).
class Steered final : public Reference {
 public:
  Steered(std::shared_ptr<Reference> kept, Tensor target)
      : kept_(std::move(kept)),
        target_(std::move(target)) {}
  /// Sets targets.distributions.states. Reads kinds. The calling rules are those of
  /// Reference::refer.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  std::shared_ptr<Reference> kept_;
  Tensor target_;
};

/// Objective that only collects per-row results, in order. Row scorers use it to evaluate a model.
/// kRowScores: log-likelihoods [B]; kClassScores: logits [B, classes]; kNextToken: most likely
/// token at each row's first target, float64 [B].
class ScoreSink final : public Objective {
 public:
  explicit ScoreSink(Needs needs) : needs_(needs) {}
  Needs needs() const override { return needs_; }
  Counts counts(const nn::Targets& /*targets*/) const override { return {}; }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const override;
  /// Returns the results of each micro-batch, on the CPU.
  const std::vector<Tensor>& rows() const { return rows_; }

 private:
  Needs needs_;
  mutable std::vector<Tensor> rows_;
};

/// Objective that only collects the inputs of the head.
class HeadStateSink final : public Objective {
 public:
  Needs needs() const override { return Needs::kHeadStates; }
  Counts counts(const nn::Targets& /*targets*/) const override { return {}; }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const override;
  const HeadStates& states() const { return states_; }

 private:
  mutable HeadStates states_;
};

}  // namespace lockstep::objective
