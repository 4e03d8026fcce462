#include "parallel/context/ring_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/context/attention_block.h"

namespace lockstep::parallel {
namespace {

using Direction = comm::P2p::Direction;

/// Tags of what passes at the same time between the same ranks.
constexpr int kKeysAndValues = 1, kGradients = 2;

struct Ring : torch::CustomClassHolder {
  SequencePart part;
  comm::Communicator* group = nullptr;
  BlockOptions options;

  int next() const { return (group->rank() + 1) % group->size(); }
  int previous() const { return (group->rank() + group->size() - 1) % group->size(); }
  /// Sends `out` on and takes what comes in its place.
  comm::Pending pass(const Tensor& out, const Tensor& in, int tag) const {
    const std::array<comm::P2p, 2> transfers{
        {{Direction::kSend, out, next(), tag}, {Direction::kReceive, in, previous(), tag}}};
    return group->exchange(transfers);
  }
  /// The runs of a rank without the padding at the sequence's end.
  std::vector<PositionRun> runs_of(int rank, int64_t length) const {
    std::vector<PositionRun> runs = part.runs_of_context(rank, length);
    for (PositionRun& run : runs) {
      run.count = std::clamp<int64_t>(options.whole_length - run.whole, 0, run.count);
    }
    return runs;
  }
  /// Calls visit(queries, keys) for every pair of this rank's runs and those of `owner`.
  template <class Visit>
  void visit_pairs(int owner, int64_t length, Visit&& visit) const {
    for (const PositionRun& queries : runs_of(group->rank(), length)) {
      for (const PositionRun& keys : runs_of(owner, length)) {
        if (queries.count > 0 && keys.count > 0) {
          visit(queries, keys);
        }
      }
    }
  }
};

Tensor run_of(const Tensor& x, const PositionRun& run) {  // [B, H, L, D] or [B, H, L]
  return x.narrow(2, run.local, run.count);
}

/// Keys and values go round: calls visit(owner, pair) with those of each rank, this one's first,
/// while the next are on their way. pair [2, B, Hkv, L, D].
template <class Visit>
void visit_ring(const Ring& ring, Tensor pair, Visit&& visit) {
  const int ranks = ring.group->size();
  Tensor coming = at::empty_like(pair);
  for (int step = 0; step < ranks; ++step) {
    comm::Pending transfer;
    if (step + 1 < ranks) {
      transfer = ring.pass(pair, coming, kKeysAndValues);
    }
    visit((ring.group->rank() + ranks - step) % ranks, pair);
    transfer.wait();
    std::swap(pair, coming);
  }
}

struct RingFunction : torch::autograd::Function<RingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const c10::intrusive_ptr<Ring>& ring) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor pair = at::stack({key, value});
    SeenSoFar seen = SeenSoFar::nothing(query);
    // What passes on is not written to, so that the first pair may be saved.
    visit_ring(*ring, pair.clone(), [&](int owner, const Tensor& passing) {
      ring->visit_pairs(owner, query.size(2), [&](const PositionRun& q, const PositionRun& k) {
        SeenSoFar rows = seen.narrow(q.local, q.count);
        see_block(
            rows,
            run_of(query, q),
            run_of(passing[0], k),
            run_of(passing[1], k),
            {q.whole, k.whole},
            ring->options);
      });
    });
    const Tensor out = seen.output();
    context->save_for_backward({query, pair, out, seen.log_sum()});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return out.to(query.scalar_type());
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto ring =
        c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor &query = saved[0], &pair = saved[1], &log_sum = saved[3];
    const Tensor dout = gradients[0].contiguous();
    const Tensor dot = (saved[2] * dout).sum(3);
    const auto sums = pair.options().dtype(log_sum.scalar_type());
    BlockGradients mine{at::zeros(query.sizes(), sums), {}, {}};
    Tensor sending, coming;  // gradients of keys and values, which follow them on their way
    comm::Pending transfer;
    visit_ring(*ring, pair.clone(), [&](int owner, const Tensor& passing) {
      Tensor of_pair = at::zeros(pair.sizes(), sums);
      ring->visit_pairs(owner, query.size(2), [&](const PositionRun& q, const PositionRun& k) {
        BlockGradients block{run_of(mine.query, q), run_of(of_pair[0], k), run_of(of_pair[1], k)};
        see_block_backward(
            block,
            run_of(dout, q),
            run_of(log_sum, q),
            run_of(dot, q),
            run_of(query, q),
            run_of(passing[0], k),
            run_of(passing[1], k),
            {q.whole, k.whole},
            ring->options);
      });
      transfer.wait();
      if (coming.defined()) {
        of_pair.add_(coming);
      }
      sending = of_pair;
      coming = at::empty_like(of_pair);
      transfer = ring->pass(sending, coming, kGradients);
    });
    transfer.wait();  // home: every rank has added its part
    const auto type = pair.scalar_type();
    return {mine.query.to(query.scalar_type()), coming[0].to(type), coming[1].to(type), Tensor()};
  }
};

/// Parts of the sequence for parts of the heads: [B, H, L, D] -> [B, H/n, n L, D], positions in
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

/// The way back: [B, H/n, n L, D] -> [B, H, L, D].
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

void check(const nn::ForwardContext& context) {
  if (context.cache() != nullptr || context.inputs().whole_length == 0) {
    throw Error(
        ErrorKind::kInternal,
        "context-parallel attention needs a part of a sequence, and takes no key-value cache");
  }
}

}  // namespace

Tensor RingAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const nn::ForwardContext& context) const {
  check(context);
  auto ring = c10::make_intrusive<Ring>();
  ring->part = part;
  ring->group = group;
  BlockOptions& options = ring->options;
  options.scale = scale;
  options.window = window;
  options.upcast = upcast;
  options.whole_length = context.inputs().whole_length;
  if (context.training() && dropout > 0) {
    options.dropout = dropout;
    options.dropout_keys =
        context.dropout_keys(nn::dropout_site(nn::DropoutSite::kAttention, layer));
    options.first_head = first_head;
    options.total_heads = total_heads;
  }
  return RingFunction::apply(query, key, value, ring).transpose(1, 2).flatten(2);  // [B, L, H D]
}

Tensor UlyssesAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const nn::ForwardContext& context) const {
  check(context);
  auto ring = c10::make_intrusive<Ring>();
  ring->part = part;
  ring->group = group;
  const int64_t ranks = group->size(), heads = query.size(1);
  const int64_t real = context.inputs().whole_length, whole = query.size(2) * ranks;
  const auto turned = [&](const Tensor& x) {
    // Key-value heads that do not divide go to every rank that has queries of them: as many copies
    // as ranks ask for, or, where a rank's queries are of several heads, one for each query.
    const int64_t kv_heads = x.size(1), copies = ranks % kv_heads == 0 ? ranks : heads;
    const Tensor enough =
        kv_heads % ranks == 0 ? x : x.repeat_interleave(copies / kv_heads, /*dim=*/1);
    return Exchange<heads_from_sequence, sequence_from_heads>::apply(enough, ring)
        .narrow(2, 0, real);
  };
  nn::Attention of_my_heads = *this;
  of_my_heads.first_head = first_head + group->rank() * (heads / ranks);
  of_my_heads.total_heads = total_heads > 0 ? total_heads : heads;
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
