#include "train/inputs.h"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "data/sequences.h"

namespace lockstep::train {
namespace {

/// On a GPU by way of pinned memory, so that the host does not wait.
at::Tensor rows_of(const std::vector<int64_t>& values, int64_t rows, c10::Device device) {
  const at::Tensor here = at::empty(
      {rows, static_cast<int64_t>(values.size()) / rows},
      at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  std::copy(values.begin(), values.end(), here.mutable_data_ptr<int64_t>());
  return here.to(device, /*non_blocking=*/true);
}

}  // namespace

nn::ForwardInputs to_inputs(const data::MicroBatch& batch, c10::Device device) {
  nn::ForwardInputs inputs;
  inputs.ids = rows_of(batch.ids, batch.rows, device);
  inputs.labels = rows_of(batch.labels, batch.rows, device);
  inputs.samples = at::tensor(batch.samples, at::kLong);
  if (batch.source_length > 0) {
    inputs.source = rows_of(batch.source, batch.rows, device);
    const at::Tensor tokens = rows_of(batch.source_tokens, batch.rows, device);  // [B, 1]
    inputs.source_mask =
        at::arange(batch.source_length, at::TensorOptions().dtype(at::kLong).device(device)) <
        tokens;  // [B, S]
  }
  return inputs;
}

int64_t count_targets(const data::MicroBatch& batch) {
  int64_t count = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    for (int64_t t = 1; t < batch.length; ++t) {
      count += batch.labels[static_cast<size_t>(row * batch.length + t)] != data::kIgnored ? 1 : 0;
    }
  }
  return count;
}

}  // namespace lockstep::train
