// Ulysses attention: all-to-all between sequence and head shards.
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/context/ring.h"
#include "parallel/context/ring_attention.h"

namespace lockstep::parallel {
namespace {

/// Converts sequence shards to head shards: [B, H, L, D] -> [B, H/n, n L, D], with positions in
/// order.
Tensor heads_from_sequence(const Tensor& x, const Ring& ring) {
  const int64_t ranks = ring.group->size(), length = x.size(2);
  const Tensor out = x.unflatten(1, {ranks, -1}).transpose(0, 1).contiguous();
  const Tensor in = at::empty_like(out);  // [n, B, H/n, L, D]
  ring.group->all_to_all(in, out).wait();
  const std::vector<int64_t> sizes{x.size(0), x.size(1) / ranks, ranks * length, x.size(3)};
  Tensor whole = at::empty(sizes, x.options());
  for (int rank = 0; rank < ranks; ++rank) {
    for (const PositionRun& run : ring.part.runs_of_context(rank, length)) {
      whole.narrow(2, run.whole, run.count).copy_(in[rank].narrow(2, run.local, run.count));
    }
  }
  return whole;
}

/// Converts head shards to sequence shards: [B, H/n, n L, D] -> [B, H, L, D].
Tensor sequence_from_heads(const Tensor& x, const Ring& ring) {
  const int64_t ranks = ring.group->size(), length = x.size(2) / ranks;
  Tensor out = at::empty({ranks, x.size(0), x.size(1), length, x.size(3)}, x.options());
  for (int rank = 0; rank < ranks; ++rank) {
    for (const PositionRun& run : ring.part.runs_of_context(rank, length)) {
      out[rank].narrow(2, run.local, run.count).copy_(x.narrow(2, run.whole, run.count));
    }
  }
  const Tensor in = at::empty_like(out);
  ring.group->all_to_all(in, out).wait();
  return in.transpose(0, 1).flatten(1, 2);
}

template <
    Tensor (*Forward)(const Tensor&, const Ring&),
    Tensor (*Backward)(const Tensor&, const Ring&)>
struct Exchange : torch::autograd::Function<Exchange<Forward, Backward>> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const c10::intrusive_ptr<Ring>& ring) {
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return Forward(x, *ring);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto ring =
        c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    return {Backward(gradient[0], *ring), Tensor()};
  }
};

}  // namespace

Tensor UlyssesAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const nn::ForwardContext& context) const {
  require_part(context);
  auto ring = c10::make_intrusive<Ring>();
  ring->part = part;
  ring->group = group;
  const int64_t ranks = group->size(), heads = query.size(1);
  const int64_t real = context.inputs().whole_length, whole = query.size(2) * ranks;
  const auto turned = [&](const Tensor& x) {
    // If the number of key-value heads is not divisible by the number of ranks, the heads are
    // replicated: one copy per rank or, if a rank's queries use several key-value heads, one per
    // query head.
    const int64_t kv_heads = x.size(1), copies = ranks % kv_heads == 0 ? ranks : heads;
    const Tensor enough =
        kv_heads % ranks == 0 ? x : x.repeat_interleave(copies / kv_heads, /*dim=*/1);
    return Exchange<heads_from_sequence, sequence_from_heads>::apply(enough, ring)
        .narrow(2, 0, real);
  };
  nn::Attention of_my_heads = *this;
  of_my_heads.first_head = first_head + group->rank() * (heads / ranks);
  of_my_heads.total_heads = total_heads > 0 ? total_heads : heads;
  if (sinks.defined()) {
    of_my_heads.sinks = sinks.narrow(0, group->rank() * (heads / ranks), heads / ranks);
  }
  const Tensor out = of_my_heads.nn::Attention::forward(
      turned(query), turned(key), turned(value), context);  // [B, T, H/n D]
  const Tensor padded = at::constant_pad_nd(out, {0, 0, 0, whole - real})
                            .unflatten(2, {heads / ranks, -1})
                            .transpose(1, 2);  // [B, H/n, n L, D]
  return Exchange<sequence_from_heads, heads_from_sequence>::apply(padded, ring)
      .transpose(1, 2)
      .flatten(2);  // [B, L, H D]
}

}  // namespace lockstep::parallel
