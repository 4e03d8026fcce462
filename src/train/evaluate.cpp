// Evaluates a model on a dataset, distributed over ranks.
#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"
#include "base/rank_status.h"
#include "train/batches/inputs.h"

namespace lockstep::train {
namespace {

constexpr int64_t kBatchesAStage = 2;

}  // namespace

double Evaluation::metric(std::string_view name) const {
  for (const auto& [metric, value] : report.metrics) {
    if (metric == name) {
      return value;
    }
  }
  return name == "loss" ? report.loss : std::numeric_limits<double>::quiet_NaN();
}

void check_finite(double loss) {
  if (!std::isfinite(loss)) {
    throw Error(
        ErrorKind::kNumeric,
        fmt::format("evaluation: the loss is {}", loss),
        "the weights contain NaN or Inf, or the computation overflows: check the checkpoint, or "
        "evaluate in float32");
  }
}

Evaluation evaluate(
    const Statistics& statistics,
    const objective::Objective& objective,
    const data::SequenceView& sequences,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress,
    const Preparation& prepare) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  Evaluation result;
  result.samples = sequences.size();
  result.batches = (sequences.size() + batch_size - 1) / batch_size;
  // The objective's sums, followed by the number of targets counted on the CPU.
  const at::Tensor totals = at::zeros({objective.sums() + 1}, at::kDouble);
  const at::Tensor own_sums = totals.narrow(0, 0, objective.sums());
  const comm::Communicator& data = axes.along(mesh::Axis::kData);
  // With a pipeline, several batches run at once to fill the stages.
  const int64_t at_once = axes.mesh().pipeline == 1 ? 1 : kBatchesAStage * axes.mesh().pipeline;
  std::vector<nn::ForwardInputs> inputs;
  // A forward pass may gather parameters, so every rank must run the same number of passes. A rank
  // without a batch repeats the last batch with its targets ignored.
  for (int64_t first = 0; first < result.batches; first += data.size()) {
    begin_phase("evaluating");
    const bool counts = first + data.rank() < result.batches;
    const int64_t batch = std::min(first + data.rank(), result.batches - 1);
    std::vector<data::Draw> draws;
    const int64_t end = std::min(sequences.size(), (batch + 1) * batch_size);
    for (int64_t sequence = batch * batch_size; sequence < end; ++sequence) {
      draws.push_back({sequence, sequence});
    }
    const data::MicroBatch made = data::make_micro_batch(sequences, draws);
    nn::ForwardInputs rows = to_inputs(made);
    if (prepare) {
      prepare(rows, made);
    }
    if (counts) {
      totals[objective.sums()] += objective.counts(rows.targets).values().at(0);
    }
    inputs.push_back(to_device(rows, device));
    if (!counts) {
      inputs.back().targets = inputs.back().targets.ignored();
    }
    if (std::ssize(inputs) == at_once || first + data.size() >= result.batches) {
      own_sums.add_(statistics(inputs));
      inputs.clear();
    }
    if (progress) {
      progress(batch + 1, result.batches);
    }
  }
  axes.data_context().all_reduce(totals).wait();
  const std::span sums(own_sums.const_data_ptr<double>(), static_cast<size_t>(objective.sums()));
  result.report = objective.report(sums);
  result.targets = static_cast<int64_t>(sums[1]);
  if (result.samples > 0 && totals[objective.sums()].item<double>() == 0) {
    throw Error(
        ErrorKind::kData,
        fmt::format("evaluation: none of {} rows has a token to predict", result.samples),
        "raise data.sequence_length, or check which tokens are learned (lockstep data show)");
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lockstep::train
