// What objectives compare a model to: scores of rows, which are all that is needed of a reference.
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

/// The log-likelihoods of the rows of each micro-batch, [B] float64 on the CPU, without dropout
/// (parallel::ParallelModel::row_scores).
using RowScorer = std::function<std::vector<Tensor>(std::span<const nn::ForwardInputs>)>;

class Reference {
 public:
  virtual ~Reference() = default;
  /// Sets targets.reference (or what the class says) of micro-batches of whole sequences. Ranks of
  /// one data coordinate call with the same ones, and where a model is run every rank with as many.
  virtual void refer(std::span<nn::ForwardInputs> micro_batches) = 0;
};

/// The scores of one model at one time, each made once, and kept by what it depends on: the row's
/// tokens as far as its last target. No second model is held, whatever the plan.
class StoredScores final : public Reference {
 public:
  /// Scores rows and keeps what they get. As refer().
  void store(std::span<const nn::ForwardInputs> micro_batches, const RowScorer& scorer);
  /// Rows that are to be kept have none. Error (kInternal): a row that was not stored.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

  size_t size() const { return scores_.size(); }
  /// All of them, a line each: for other ranks, whose rows this one may be given later, and for
  /// files.
  std::string text() const;
  /// What text() gave. Error (kData): it is something else.
  void add(std::string_view text);

 private:
  std::map<std::string, double> scores_;  // by hash
};

/// The same model without what is being trained beside it: scored anew for each step
/// (parallel::ParallelModel::set_adapters).
class AdaptersOff final : public Reference {
 public:
  /// `set_adapters(false)` takes them out of the products, `set_adapters(true)` puts them back.
  AdaptersOff(RowScorer scorer, std::function<void(bool on)> set_adapters)
      : scorer_(std::move(scorer)),
        set_adapters_(std::move(set_adapters)) {}
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  RowScorer scorer_;
  std::function<void(bool on)> set_adapters_;
};

/// What the head of a model reads of micro-batches [B, T, C], of this rank's part of each, and its
/// weight; empty where another rank has the head.
struct HeadStates {
  std::vector<Tensor> states;
  Tensor vocabulary;
};
using StateReader = std::function<HeadStates(std::span<const nn::ForwardInputs>)>;

/// A second model, of whose distributions positions are told (nn::Distributions). `reader` runs it
/// without dropout (parallel::EvaluationModel::head_states).
class FrozenModel final : public Reference {
 public:
  explicit FrozenModel(StateReader reader) : reader_(std::move(reader)) {}
  /// Sets targets.distributions' states and vocabulary of micro-batches that have positions. As
  /// Reference::refer.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  StateReader reader_;
};

/// Of a head that gives states: those of rows to be forgotten are to be `target` [C] everywhere,
/// whatever `kept` (null: nobody) says of them.
class Steered final : public Reference {
 public:
  Steered(std::shared_ptr<Reference> kept, Tensor target)
      : kept_(std::move(kept)),
        target_(std::move(target)) {}
  /// Sets targets.distributions.states. As Reference::refer; reads kinds.
  void refer(std::span<nn::ForwardInputs> micro_batches) override;

 private:
  std::shared_ptr<Reference> kept_;
  Tensor target_;
};

/// An objective that keeps a number or several of each row that it is shown, in their order: what
/// RowScorers evaluate a model by. Of kRowScores log-likelihoods [B], of kClassScores logits [B,
/// classes], of kNextToken the likeliest token at each row's first target, float64 [B].
class ScoreSink final : public Objective {
 public:
  explicit ScoreSink(Needs needs) : needs_(needs) {}
  Needs needs() const override { return needs_; }
  Counts counts(const nn::Targets& /*targets*/) const override { return {}; }
  Tensor measure(
      const nn::Scores& scores, const nn::Targets& targets, const Counts& step) const override;
  /// Of each micro-batch, on the CPU.
  const std::vector<Tensor>& rows() const { return rows_; }

 private:
  Needs needs_;
  mutable std::vector<Tensor> rows_;
};

/// The same of what the head reads.
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
