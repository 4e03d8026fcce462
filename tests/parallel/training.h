// Trains small models of odd sizes on one rank and under any plan, for tests.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/format.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "numbers.h"
#include "parallel/parallelize.h"

namespace lockstep::parallel::testing {

constexpr int64_t kRows = 13;  // size of the global batch; not divisible by any number of ranks
constexpr int64_t kLength = 10;

/// A tied head; fewer layers than most numbers of ranks; a prime vocabulary size; a width that is
/// not divisible by 3 or 4.
inline model::ModelConfig tied_config() {
  return model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 22, "n_layer": 2, "n_head": 2,
          "n_positions": 16, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1})",
      "tied");
}

/// An untied head; one layer.
inline model::ModelConfig untied_config() {
  return model::parse_model_config(
      R"({"model_type": "llama", "vocab_size": 53, "hidden_size": 18, "num_hidden_layers": 1,
          "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 31,
          "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})",
      "untied");
}

/// Returns the rows of the global batch for cell `cell` of `cells` (ranks x micro-batches).
inline nn::ForwardInputs rows(int64_t vocabulary, int64_t step, int64_t cell, int64_t cells) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + static_cast<uint64_t>(step));
  const Tensor ids =
      torch::empty({kRows, kLength}, torch::kLong).random_(0, vocabulary / 4, generator);
  Tensor labels = ids.clone();
  for (int64_t row = 0; row < kRows; row += 3) {  // ranks have different numbers of targets
    labels.index_put_({row, torch::indexing::Slice(0, kLength / 2)}, -100);
  }
  const int64_t begin = kRows * cell / cells, end = kRows * (cell + 1) / cells;
  nn::ForwardInputs inputs;
  inputs.ids = ids.slice(0, begin, end);
  inputs.targets = nn::next_tokens(labels.slice(0, begin, end));
  inputs.samples = torch::arange(step * kRows + begin, step * kRows + end);
  inputs.seed = 5;
  inputs.step = step;
  inputs.training = true;
  return inputs;
}

inline int64_t target_tokens() {
  return rows(8, 0, 0, 1).targets.counts.sum().item<int64_t>();
}

/// Configuration of a run.
struct TrainingRun {
  model::ModelConfig config = tied_config();
  Plan plan{};
  int ranks = 1;
  at::ScalarType type = at::kFloat;
  int64_t steps = 5;
  int64_t first_step = 0;

  std::string name() const {
    return fmt::format(
        "stage {} on {} ranks with {} micro-batches",
        plan.zero_stage,
        ranks,
        plan.accumulation_steps);
  }
};

using State = std::map<std::string, Tensor>;  // whole tensors by "group:name"

struct Outcome {
  std::vector<double> losses;               // mean per token
  std::map<std::string, Tensor> gradients;  // whole float32 gradients of the first step
  State state;                              // final state
};

inline Plan small_plan(int zero_stage = 0, int64_t accumulation = 1) {
  Plan plan;
  plan.zero_stage = zero_stage;
  plan.accumulation_steps = accumulation;
  plan.optimizer.weight_decay = 0.1;
  // Keeps gradients that are only rounding errors from causing full steps.
  plan.optimizer.adam_epsilon = 1e-6;
  plan.bucket_megabytes = 0.01;
  return plan;
}

/// A data-parallel model and its process groups.
struct ModelOnRanks {
  ParallelGroups axes;
  std::unique_ptr<ParallelModel> model;
  ModelOnRanks(const TrainingRun& run, comm::Communicator& group, const ModelSpec::Fill& fill)
      : axes(group, {.data = group.size()}),
        model(parallelize({run.config, run.type, at::kCPU, fill}, run.plan, axes)) {}
  ParallelModel& operator*() const { return *model; }
  ParallelModel* operator->() const { return model.get(); }
};

inline ModelOnRanks make_parallel(const TrainingRun& run, comm::Communicator& group) {
  return {run, group, fill_at_random(run.config, 3)};
}

inline StepResult run_step(
    ParallelModel& model, const TrainingRun& run, const comm::Communicator& group, int64_t step) {
  std::vector<nn::ForwardInputs> inputs;
  const int64_t micro_batches = run.plan.accumulation_steps;
  for (int64_t m = 0; m < micro_batches; ++m) {
    inputs.push_back(rows(
        run.config.vocab_size,
        step,
        group.rank() * micro_batches + m,
        group.size() * micro_batches));
  }
  return model.forward_backward(inputs, target_tokens());
}

/// Copies a rank's slice into the whole tensor.
inline void put(
    State& state,
    const std::string& name,
    at::IntArrayRef shape,
    int64_t begin,
    const Tensor& part) {
  Tensor& whole = state[name];
  if (!whole.defined()) {
    whole = torch::full(shape, std::nan(""));  // elements that no rank writes stay NaN
  }
  whole.view({-1}).narrow(0, begin, part.numel()).copy_(part);
}

inline void collect_gradients(ParallelModel& model, State& gradients) {
  model.visit_gradients([&](const StateSlice& slice) {
    put(gradients, slice.name, slice.shape, slice.begin, slice.data);
  });
}

inline void collect_state(ParallelModel& model, State& state) {
  model.visit_state([&](const StateSlice& slice) {
    put(state,
        slice.file_group + ":" + slice.name,
        slice.shape,
        slice.begin + slice.owned_begin,
        slice.data.narrow(0, slice.owned_begin, slice.owned_end - slice.owned_begin));
  });
}

inline void restore_state(ParallelModel& model, const State& state, int64_t steps) {
  model.visit_state([&](const StateSlice& slice) {
    const Tensor whole = state.at(slice.file_group + ":" + slice.name).view({-1});
    Tensor data = slice.data;
    data.copy_(whole.narrow(0, slice.begin, data.numel()));
  });
  model.optimizer().set_steps(steps);
  model.state_changed();
}

/// Trains, starting from `start` if given. Calls `with` on every rank before the first step.
inline Outcome train(
    const TrainingRun& run,
    const State& start = {},
    const std::function<void(comm::Communicator&, ParallelModel&)>& with = nullptr) {
  Outcome outcome;
  std::mutex mutex;
  comm::run_ranks(run.ranks, [&](comm::Communicator& group) {
    const auto model = make_parallel(run, group);
    if (!start.empty()) {
      restore_state(*model, start, run.first_step);
    }
    if (with) {
      with(group, *model);
    }
    for (int64_t step = run.first_step; step < run.first_step + run.steps; ++step) {
      const StepResult result = run_step(*model, run, group, step);
      {
        const std::scoped_lock lock(mutex);
        if (step == run.first_step) {
          collect_gradients(*model, outcome.gradients);
        }
        if (group.rank() == 0) {
          outcome.losses.push_back(result.loss);
        }
      }
      model->optimizer_step(1e-3);
    }
    model->data_parallel().settle();  // outside the lock: it may wait for another rank
    const std::scoped_lock lock(mutex);
    collect_state(*model, outcome.state);
  });
  return outcome;
}

inline void expect_equal(
    const Outcome& other, const Outcome& one, double tolerance, const std::string& what) {
  ASSERT_EQ(other.losses.size(), one.losses.size()) << what;
  for (size_t step = 0; step < one.losses.size(); ++step) {
    numbers::expect_loss(
        other.losses[step],
        one.losses[step],
        fmt::format("{}, step {}", what, step),
        tolerance * one.losses[step]);
  }
  numbers::expect_gradients(other.gradients, one.gradients, what, tolerance);
}

}  // namespace lockstep::parallel::testing
