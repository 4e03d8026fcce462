// Converts micro-batches to tensors.
#include "train/batches/inputs.h"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/index.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "base/counter_random.h"
#include "ops/host_copies.h"

namespace lockstep::train {
namespace {

at::Tensor rows_of(const std::vector<int64_t>& values, int64_t rows) {
  return at::tensor(values, at::kLong).view({rows, -1});
}

nn::RowKind kind_of(data::RowRole role) {
  return role == data::RowRole::kChosen     ? nn::RowKind::kChosen
         : role == data::RowRole::kRejected ? nn::RowKind::kRejected
         : role == data::RowRole::kForget   ? nn::RowKind::kForget
         : role == data::RowRole::kRetain   ? nn::RowKind::kRetain
                                            : nn::RowKind::kPlain;
}

/// Returns the document index of each token in packed rows. Undefined for other rows.
at::Tensor documents_of(const data::MicroBatch& batch) {
  return batch.documents.empty() ? at::Tensor() : rows_of(batch.documents, batch.rows);
}

nn::Targets classes_of(const data::MicroBatch& batch) {
  const at::Tensor classes = at::tensor(batch.classes, at::kLong);
  if (batch.places.empty()) {
    return nn::classes_at(at::tensor(batch.positions, at::kLong), classes, batch.length);
  }
  std::vector<int64_t> places = batch.positions;
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] += static_cast<int64_t>(batch.begin(i));
  }
  return nn::document_classes_at(at::tensor(places, at::kLong), classes, documents_of(batch));
}

/// Returns the mask of prompt tokens, [rows, length].
at::Tensor prompts_of(const data::MicroBatch& batch) {
  at::Tensor are_prompts = at::zeros({batch.rows * batch.length}, at::kBool);
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    are_prompts.narrow(0, static_cast<int64_t>(batch.begin(i)), batch.prompts[i]).fill_(true);
  }
  return are_prompts.view({batch.rows, batch.length});
}

/// Returns the targets of answers, with their kinds and groups.
nn::Targets targets_of_answers(const data::MicroBatch& batch) {
  const at::Tensor labels = rows_of(batch.labels, batch.rows), documents = documents_of(batch);
  nn::Targets targets = !batch.classes.empty() ? classes_of(batch)
                        : batch.prompts.empty()
                            ? nn::next_tokens_of_documents(labels, documents)
                            : nn::next_tokens(labels, prompts_of(batch), documents);
  std::vector<int64_t> kinds;
  for (const data::RowRole role : batch.roles) {
    kinds.push_back(static_cast<int64_t>(kind_of(role)));
  }
  targets.kinds = at::tensor(kinds, at::kLong);
  targets.groups = at::tensor(batch.groups, at::kLong);
  if (!batch.margins.empty()) {
    targets.baseline = at::tensor(batch.margins, at::kDouble);
  }
  return targets;
}

}  // namespace

nn::ForwardInputs to_inputs(const data::MicroBatch& batch) {
  nn::ForwardInputs inputs;
  inputs.ids = rows_of(batch.ids, batch.rows);
  inputs.targets = !batch.roles.empty()    ? targets_of_answers(batch)
                   : batch.are_masked      ? nn::own_tokens(rows_of(batch.labels, batch.rows))
                   : batch.classes.empty() ? nn::next_tokens(rows_of(batch.labels, batch.rows))
                                           : classes_of(batch);
  if (!batch.outputs.empty()) {
    inputs.targets.outputs =
        at::tensor(batch.outputs, at::kFloat).view({std::ssize(batch.classes), -1});
  }
  inputs.samples = at::tensor(batch.samples, at::kLong);
  if (std::ranges::any_of(
          batch.row_tokens, [&](int64_t tokens) { return tokens < batch.length; })) {
    inputs.real_tokens =
        at::arange(batch.length, at::kLong).lt(rows_of(batch.row_tokens, batch.rows));
  }
  if (!batch.document_starts.empty()) {
    inputs.document_starts = rows_of(batch.document_starts, batch.rows);
    inputs.positions = at::arange(batch.length, at::kLong) - inputs.document_starts;
  }
  if (!batch.document_samples.empty()) {
    const at::Tensor of_documents = at::tensor(batch.document_samples, at::kLong);
    inputs.token_samples =
        at::stack({of_documents.index({documents_of(batch)}), inputs.positions}, 2);
  }
  if (!batch.token_types.empty()) {
    inputs.token_types = rows_of(batch.token_types, batch.rows);
  }
  if (batch.source_length > 0) {
    inputs.source = rows_of(batch.source, batch.rows);
    const at::Tensor places = at::arange(batch.source_length, at::kLong);
    inputs.source_mask = places.lt(rows_of(batch.source_tokens, batch.rows));  // [S], [B, 1]
  }
  return inputs;
}

nn::ForwardInputs to_device(const nn::ForwardInputs& inputs, c10::Device device) {
  nn::ForwardInputs there = inputs;
  there.targets = inputs.targets.to(device);
  for (at::Tensor* tensor :
       {&there.ids,
        &there.positions,
        &there.document_starts,
        &there.real_tokens,
        &there.token_types,
        &there.source,
        &there.source_mask}) {
    *tensor = tensor->defined() ? ops::to_device(*tensor, device) : *tensor;
  }
  if (inputs.document_starts.defined() &&
      !device.is_cpu()) {  // computed here because the starts are still on the CPU
    there.document_offsets = ops::offsets_of_documents(inputs.document_starts);
    there.document_offsets.offsets = ops::to_device(there.document_offsets.offsets, device);
  }
  return there;
}

int64_t shapes_of(std::span<const nn::ForwardInputs> inputs) {
  uint64_t key = inputs.size();
  for (const nn::ForwardInputs& rows : inputs) {
    for (const int64_t size : rows.ids.sizes()) {
      key = derive_key(key, static_cast<uint64_t>(size));
    }
    key = derive_key(key, rows.source.defined() ? static_cast<uint64_t>(rows.source.size(1)) : 0);
  }
  return static_cast<int64_t>(key >> 12);
}

}  // namespace lockstep::train
