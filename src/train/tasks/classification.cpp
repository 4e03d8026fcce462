// Classifies rows on several ranks.
#include "train/tasks/classification.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "data/loader.h"
#include "train/batches/inputs.h"

namespace lockstep::train {

Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  constexpr int64_t kBatchesOfAStage = 2;
  const at::NoGradGuard no_gradient;
  const auto start = std::chrono::steady_clock::now();
  Classified result;
  result.logits = at::zeros({rows.size(), classes}, at::kFloat);
  result.batches = (rows.size() + batch_size - 1) / batch_size;
  comm::Communicator& data = axes.along(mesh::Axis::kData);
  const int64_t at_once = axes.mesh().pipeline == 1 ? 1 : kBatchesOfAStage * axes.mesh().pipeline;
  // Sort by length so that batches have little padding.
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t row) { return rows.tokens(row); });
  std::vector<nn::ForwardInputs> inputs;
  std::vector<int64_t> begins;  // first row of each batch; -1: repeated, not counted
  // A forward pass may gather parameters, so all ranks must run the same number of passes. A rank
  // without a batch repeats the last one.
  for (int64_t first = 0; first < result.batches; first += data.size()) {
    const bool counts = first + data.rank() < result.batches;
    const int64_t begin = std::min(first + data.rank(), result.batches - 1) * batch_size;
    std::vector<data::Draw> draws;
    for (int64_t at = begin; at < std::min(rows.size(), begin + batch_size); ++at) {
      const int64_t row = order[static_cast<size_t>(at)];
      draws.push_back({row, row});
    }
    data::MicroBatch batch = data::make_micro_batch(rows, draws);
    batch.classes.assign(batch.classes.size(), 0);  // any class marks the position to read
    inputs.push_back(to_device(to_inputs(batch), device));
    begins.push_back(counts ? begin : -1);
    if (std::ssize(inputs) == at_once || first + data.size() >= result.batches) {
      const std::vector<at::Tensor> logits = scorer(inputs);
      for (size_t i = 0; i < logits.size(); ++i) {
        if (begins[i] >= 0) {
          const std::span own = std::span(order).subspan(
              static_cast<size_t>(begins[i]), static_cast<size_t>(logits[i].size(0)));
          result.logits.index_copy_(
              0, at::tensor(own, at::kLong), logits[i].to(result.logits.device()));
        }
      }
      inputs.clear();
      begins.clear();
    }
    if (progress) {
      progress(std::min(first + data.rank() + 1, result.batches), result.batches);
    }
  }
  data.all_reduce(result.logits).wait();  // each row is nonzero on one rank only
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace lockstep::train
