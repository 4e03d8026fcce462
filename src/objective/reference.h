// Reference models of objectives, represented by the scores that they assign to rows.
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
  /// Sets targets.reference (or what the class documents) in micro-batches of whole sequences.
  /// Ranks with the same data coordinate pass the same micro-batches. If a model is run, every rank
  /// must pass the same number.
  virtual void refer(std::span<nn::ForwardInputs> micro_batches) = 0;
};

/// Scores of one model at one point in time, computed once and stored by a hash of the row's tokens
/// up to its last target. No second model is in memory, under any plan.
class StoredScores final : public Reference {
 public:
  /// Scores the rows and stores the results. Same calling rules as refer().
  void store(std::span<const nn::ForwardInputs> micro_batches, const RowScorer& scorer);
  /// Rows of the retain set have no stored score. Throws Error (kInternal) if another row was not
  /// stored.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

  size_t size() const { return scores_.size(); }
  /// All scores, one line each: for files, and for other ranks whose rows may later move to this
  /// one.
  std::string text() const;
  /// Adds the scores in text()'s format. Throws Error (kData) if the format is invalid.
  void add(std::string_view text);

 private:
  std::map<std::string, double> scores_;  // by hash
};

/// The trained model with its adapters disabled; scored again in each step
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

/// Head inputs of micro-batches, [B, T, C] for this rank's positions, and the head's weight; empty
/// if another rank has the head.
struct HeadStates {
  std::vector<Tensor> states;
  Tensor vocabulary;
};
using StateReader = std::function<HeadStates(std::span<const nn::ForwardInputs>)>;

/// A second model that supplies target distributions (nn::Distributions). `reader` runs it without
/// dropout (parallel::EvaluationModel::head_states).
class FrozenModel final : public Reference {
 public:
  explicit FrozenModel(StateReader reader) : reader_(std::move(reader)) {}
  /// Sets the states and vocabulary of targets.distributions in micro-batches that have such
  /// positions. Calling rules as Reference::refer.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  StateReader reader_;
};

/// Target states for a head that returns states: `target` [C] at every position of the forget set;
/// for the retain set, the states that the reference `kept` returns (null: none).
class Steered final : public Reference {
 public:
  Steered(std::shared_ptr<Reference> kept, Tensor target)
      : kept_(std::move(kept)),
        target_(std::move(target)) {}
  /// Sets targets.distributions.states; reads kinds. Calling rules as Reference::refer.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  std::shared_ptr<Reference> kept_;
  Tensor target_;
};

/// Objective that only collects per-row results, in order; RowScorers evaluate a model with it.
/// kRowScores: log-likelihoods [B]; kClassScores: logits [B, classes]; kNextToken: the most likely
/// token at each row's first target, float64 [B].
class ScoreSink final : public Objective {
 public:
  explicit ScoreSink(Needs needs) : needs_(needs) {}
  Needs needs() const override { return needs_; }
  Counts counts(const nn::Targets& /*targets*/) const override { return {}; }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const override;
  /// Results of each micro-batch, on the CPU.
  const std::vector<Tensor>& rows() const { return rows_; }

 private:
  Needs needs_;
  mutable std::vector<Tensor> rows_;
};

/// The same for the head's inputs.
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
