// Warms up CPU libraries with a small model.
#include "train/machine/warm_up.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/initialize.h"
#include "nn/language_model.h"

namespace lockstep::train {
namespace {

/// Returns a model with one layer and a few small heads. It is sufficient because the code that
/// libraries load depends only on the kinds of operations.
model::ModelConfig small_one(const model::ModelConfig& model, int64_t length) {
  constexpr int64_t kVocabulary = 512, kHeads = 4, kWidth = 128;
  model::ModelConfig small = model::with_first_layers(model, 1);
  small = model::with_vocabulary(std::move(small), std::min(model.vocab_size, kVocabulary));
  const int64_t queries = std::min(model.queries_per_kv_head(), kHeads);
  small.kv_heads = std::min(model.kv_heads, std::max<int64_t>(kHeads / queries, 1));
  small.heads = small.kv_heads * queries;
  while (small.kv_heads > 1 && small.heads * small.head_dim > kWidth) {
    small.kv_heads -= 1;
    small.heads = small.kv_heads * queries;
  }
  small.hidden_size = small.heads * small.head_dim;
  small.intermediate_size = std::min(model.intermediate_size, 4 * small.hidden_size);
  small.experts.width = std::min(model.experts.width, small.hidden_size);
  small.embedding_padding_row.reset();
  small.decoder_start_token_id = 0;
  if (model::position_limit(model)) {
    small.max_positions = std::min(model.max_positions, length + model.first_position);
  }
  return small;
}

}  // namespace

bool warm_up(const model::ModelConfig& model, c10::ScalarType type, int64_t rows, int64_t length) {
  constexpr int64_t kRows = 8, kLength = 64;
  const model::ModelConfig small = small_one(model, std::clamp<int64_t>(length, 2, kLength));
  const bool is_alike = rows <= kRows && length <= kLength && !model.is_encoder_decoder() &&
                        small.hidden_size == model.hidden_size &&
                        small.intermediate_size == model.intermediate_size &&
                        small.vocab_size == model.vocab_size;
  rows = std::clamp<int64_t>(rows, 1, kRows);
  length = std::clamp<int64_t>(length, 2, kLength);
  const at::AutoGradMode with_grad(true);
  const auto made = nn::make_model(small, type, at::kCPU);
  nn::initialize(*made, 1);
  nn::ForwardInputs inputs;
  inputs.ids =
      at::arange(rows * length, at::kLong).remainder(small.vocab_size).view({rows, length});
  if (small.head.gives_states()) {
    inputs.targets = nn::with_states(nn::next_tokens(inputs.ids));
    inputs.targets.distributions.states = at::zeros({1, 1, small.hidden_size});
  } else {
    inputs.targets = nn::next_tokens(inputs.ids.remainder(small.head_rows()));
  }
  if (small.is_encoder_decoder()) {
    // The length differs from that of the target, because libraries generate separate kernels for
    // each length.
    inputs.source = inputs.ids.narrow(1, 0, (length + 1) / 2);
    inputs.source_mask = at::ones_like(inputs.source, at::kBool);
  }
  inputs.samples = at::arange(rows, at::kLong);
  inputs.training = true;
  torch::autograd::backward({made->loss(inputs)}, {});
  return is_alike;
}

}  // namespace lockstep::train
