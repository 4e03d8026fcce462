// Limits the number of tokens of a document that an expert processes.
#include "nn/expert_capacity.h"

#include <ATen/ATen.h>

#include "nn/forward_context.h"

namespace lockstep::nn {
namespace {

/// Returns the choices for the tokens of whole rows, [B, W, k] int32: index of the expert plus one,
/// or 0 for padding.
Tensor whole_choices(
    const ExpertCapacity& capacity,
    const Tensor& chosen,  // [B, T, k]
    const Tensor& real,    // [B, T] bool
    const Tensor& places,  // [T]
    int64_t length) {
  const Tensor here = places.lt(length).nonzero().squeeze(1);  // a sequence may be right-padded
  const Tensor marked = (chosen + 1).masked_fill(real.logical_not().unsqueeze(-1), 0).to(at::kInt);
  const Tensor whole =
      at::zeros({chosen.size(0), length, chosen.size(2)}, marked.options())
          .index_copy_(1, places.index_select(0, here), marked.index_select(1, here));
  if (capacity.sum_over_sequence) {
    capacity.sum_over_sequence(whole);
  }
  return whole;
}

}  // namespace

WithinCapacity within_capacity(
    const ExpertCapacity& capacity,
    const Tensor& chosen,
    int64_t count,
    const Tensor& places,
    const ForwardContext& context) {
  const ForwardInputs& inputs = context.inputs();
  const int64_t rows = inputs.ids.size(0), here = places.size(0), per_token = chosen.size(1);
  const int64_t length = inputs.whole_length > 0 ? inputs.whole_length : here;
  const c10::Device device = chosen.device();
  const Tensor at_places = places.to(device);
  const Tensor real = inputs.real_tokens.defined()
                          ? inputs.real_tokens.to(device)
                          : at::ones({rows, here}, chosen.options().dtype(at::kBool));
  const Tensor choices = chosen.view({rows, here, per_token});
  const Tensor whole = whole_choices(capacity, choices, real, at_places, length);

  const Tensor starts = inputs.document_starts.defined()
                            ? inputs.document_starts.to(device)
                            : at::zeros({rows, length}, chosen.options());  // [B, W]
  const Tensor is_real = whole.select(2, 0).gt(0);
  // [B, W]: number of non-padding tokens in each token's document.
  const Tensor sizes = at::zeros({rows, length}, chosen.options().dtype(at::kDouble))
                           .scatter_add_(1, starts, is_real.to(at::kDouble))
                           .gather(1, starts);
  // Subtracted before rounding up, so that rounding errors do not increase an integer product.
  constexpr double kRounding = 1e-9;
  const double of_token =
      capacity.factor * static_cast<double>(per_token) / static_cast<double>(count);
  const Tensor room = at::ceil(sizes * of_token - kRounding).clamp_min(1);

  // Number of earlier choices in the row for each token and expert, minus those that precede the
  // token's document.
  const Tensor marks = at::zeros({rows, length, count + 1}, whole.options())
                           .scatter_(2, whole.to(at::kLong), 1)
                           .narrow(2, 1, count);
  const Tensor before = marks.cumsum(1, at::kInt) - marks;
  const Tensor outside = before.gather(1, starts.unsqueeze(-1).expand({rows, length, count}));
  const Tensor ranks = (before - outside).index_select(1, at_places.clamp_max(length - 1));
  const Tensor has_room =
      ranks.gather(2, choices)
          .lt(room.index_select(1, at_places.clamp_max(length - 1)).unsqueeze(-1));
  const Tensor counts = real.unsqueeze(-1).expand_as(has_room);
  return {
      has_room.logical_and(counts).view({-1, per_token}),
      counts.logical_and(has_room.logical_not()).sum().to(at::kDouble)};
}

}  // namespace lockstep::nn
