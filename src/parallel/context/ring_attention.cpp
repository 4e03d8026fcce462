// Ring attention over context-parallel ranks.
#include "parallel/context/ring_attention.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/attention_part.h"
#include "parallel/context/attention_block.h"
#include "parallel/context/ring.h"

namespace lockstep::parallel {
namespace {

struct AttentionRing final : Ring {
  BlockOptions options;

  std::vector<PositionRun> runs(int of, int64_t length) const {
    return runs_of(of, length, options.whole_length);
  }
  /// Calls visit(queries, keys) for each pair of a position run of this rank and one of rank
  /// `owner`.
  template <class Visit>
  void visit_pairs(int owner, int64_t length, Visit&& visit) const {
    for (const PositionRun& queries : runs(rank(), length)) {
      for (const PositionRun& keys : runs(owner, length)) {
        if (queries.count > 0 && keys.count > 0) {
          visit(queries, keys);
        }
      }
    }
  }
};

/// Attention output [B, H, L, D] and log-sum-exp of the scores, in the accumulation type.
struct Found {
  Tensor out, log_sum;
};

Found forward_by_tiles(const AttentionRing& ring, const Tensor& query, const Tensor& pair) {
  SeenSoFar seen = SeenSoFar::nothing(query);
  visit_ring(ring, pair, [&](int owner, const Tensor& passing) {
    ring.visit_pairs(owner, query.size(2), [&](const PositionRun& q, const PositionRun& k) {
      SeenSoFar rows = seen.narrow(q.local, q.count);
      see_block(
          rows,
          run_of(query, q),
          run_of(passing[0], k),
          run_of(passing[1], k),
          {q.whole, k.whole},
          ring.options);
    });
  });
  return {seen.output(), seen.log_sum()};
}

/// Returns the gradients in the accumulation type.
ops::AttentionPartGradients backward_by_tiles(
    const AttentionRing& ring,
    const Tensor& dout,
    const Found& found,
    const Tensor& query,
    const Tensor& pair) {
  const Tensor dot = (found.out * dout).sum(3);
  const auto sums = pair.options().dtype(found.log_sum.scalar_type());
  const Tensor dquery = at::zeros(query.sizes(), sums);
  const Tensor dpair = visit_ring_backward(ring, pair, [&](int owner, const Tensor& passing) {
    Tensor of_pair = at::zeros(pair.sizes(), sums);
    ring.visit_pairs(owner, query.size(2), [&](const PositionRun& q, const PositionRun& k) {
      BlockGradients block{run_of(dquery, q), run_of(of_pair[0], k), run_of(of_pair[1], k)};
      see_block_backward(
          block,
          run_of(dout, q),
          run_of(found.log_sum, q),
          run_of(dot, q),
          run_of(query, q),
          run_of(passing[0], k),
          run_of(passing[1], k),
          {q.whole, k.whole},
          ring.options);
    });
    return of_pair;
  });
  return {dquery, dpair[0], dpair[1]};
}

/// The keys of another rank that this rank's queries attend to, without windows. In zigzag order
/// they form one block. For this rank's own keys: causal attention, since its positions ascend. For
/// an earlier rank: its first chunk and all queries. For a later rank: both chunks and the queries
/// of the second chunk. Without causal attention: all keys and all queries.
struct Part {
  PositionRun queries, keys;
  ops::PartSees sees = ops::PartSees::kAll;
  bool is_empty() const { return queries.count == 0 || keys.count == 0; }
};

Part part_of(const AttentionRing& ring, int owner, int64_t length) {
  const auto mine = ring.runs(ring.rank(), length), theirs = ring.runs(owner, length);
  const auto all = [](const std::vector<PositionRun>& runs) {
    PositionRun sum;
    for (const PositionRun& run : runs) {  // without zigzag order (a single rank), there is one run
      sum.count += run.count;
    }
    return sum;
  };
  if (!ring.options.causal) {
    return {all(mine), all(theirs)};
  }
  if (owner == ring.rank()) {
    return {all(mine), all(mine), ops::PartSees::kEarlier};
  }
  return owner < ring.rank() ? Part{all(mine), theirs[0]} : Part{mine[1], all(theirs)};
}

/// Returns true if the fused loops support this attention: no windows, documents, soft caps or
/// dropout, and a limited shard length.
bool goes_by_parts(const AttentionRing& ring, const Tensor& query, const Tensor& key) {
  const bool has_window =
      ring.options.window > 0 && ring.options.window < ring.options.whole_length;
  return !has_window && !ring.options.document_starts.defined() && ring.options.dropout == 0 &&
         ring.options.cap == 0 && ops::has_attention_part(query, key);
}

/// With two ranks, outputs and gradients are added and rounded only once. With more ranks they are
/// accumulated in float32.
at::ScalarType type_of_sums(const AttentionRing& ring, const Tensor& query) {
  return ring.ranks() > 2 ? at::kFloat : query.scalar_type();
}

/// Packs keys and values [B, H, L, D] into one message [2, B, L, H, D], the layout of a packed
/// projection.
Tensor by_token(const Tensor& key, const Tensor& value) {
  return at::stack({key.transpose(1, 2), value.transpose(1, 2)});
}

struct KeysAndValues {
  Tensor key, value;
};

KeysAndValues run_of_pair(const Tensor& pair, const PositionRun& run) {
  return {run_of(pair[0].transpose(1, 2), run), run_of(pair[1].transpose(1, 2), run)};
}

/// Returns zeros [B, H, L, D] in token-major layout.
Tensor zeros_by_token(const Tensor& like) {
  return at::zeros({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

Found own_part(
    const AttentionRing& ring, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Part part = part_of(ring, ring.rank(), query.size(2));
  const auto made = [&] {
    return ops::attention_part(
        run_of(query, part.queries),
        run_of(key, part.keys),
        run_of(value, part.keys),
        ring.options.scale,
        part.sees);
  };
  if (part.queries.count == query.size(2)) {
    const ops::AttentionPart all = made();
    return {all.out, all.log_sum};
  }
  const auto floats = query.options().dtype(at::kFloat);
  Found found{zeros_by_token(query), at::full(query.sizes().slice(0, 3), -INFINITY, floats)};
  if (!part.is_empty()) {
    const ops::AttentionPart some = made();
    run_of(found.out, part.queries).copy_(some.out);
    run_of(found.log_sum, part.queries).copy_(some.log_sum);
  }
  return found;
}

Found forward_by_parts(
    const AttentionRing& ring, const Tensor& query, const Tensor& key, const Tensor& value) {
  Found found;
  visit_ring(ring, by_token(key, value), [&](int owner, const Tensor& passing) {
    if (owner == ring.rank()) {  // always the first visit
      found = own_part(ring, query, key, value);
      found.out = found.out.to(type_of_sums(ring, query));
      return;
    }
    const Part part = part_of(ring, owner, query.size(2));
    if (part.is_empty()) {
      return;
    }
    const KeysAndValues seen = run_of_pair(passing, part.keys);
    const ops::AttentionPart more = ops::attention_part(
        run_of(query, part.queries), seen.key, seen.value, ring.options.scale, part.sees);
    ops::add_attention_part(
        {run_of(found.out, part.queries), run_of(found.log_sum, part.queries)}, more);
  });
  return found;
}

/// `seen` contains only the visible keys and values.
ops::AttentionPartGradients part_backward(
    const AttentionRing& ring,
    const Part& part,
    const Tensor& dout,
    const Found& found,
    const Tensor& query,
    const KeysAndValues& seen) {
  return ops::attention_part_backward(
      run_of(dout, part.queries),
      {run_of(found.out, part.queries), run_of(found.log_sum, part.queries)},
      run_of(query, part.queries),
      seen.key,
      seen.value,
      ring.options.scale,
      part.sees);
}

ops::AttentionPartGradients own_part_backward(
    const AttentionRing& ring,
    const Tensor& dout,
    const Found& found,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value) {
  const Part part = part_of(ring, ring.rank(), query.size(2));
  const auto made = [&] {
    return part_backward(
        ring, part, dout, found, query, {run_of(key, part.keys), run_of(value, part.keys)});
  };
  if (part.queries.count == query.size(2)) {
    return made();
  }
  const ops::AttentionPartGradients all{
      zeros_by_token(query), zeros_by_token(key), zeros_by_token(value)};
  if (!part.is_empty()) {
    const ops::AttentionPartGradients some = made();
    run_of(all.query, part.queries).copy_(some.query);
    run_of(all.key, part.keys).copy_(some.key);
    run_of(all.value, part.keys).copy_(some.value);
  }
  return all;
}

ops::AttentionPartGradients backward_by_parts(
    const AttentionRing& ring,
    const Tensor& dout,
    const Found& found,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value) {
  const auto type = type_of_sums(ring, query);
  const Tensor pair = by_token(key, value);
  ops::AttentionPartGradients own;
  const Tensor others = visit_ring_backward(ring, pair, [&](int owner, const Tensor& passing) {
    if (owner == ring.rank()) {  // always the first visit
      own = own_part_backward(ring, dout, found, query, key, value);
      own = {own.query.to(type), own.key.to(type), own.value.to(type)};
      return Tensor();
    }
    const Tensor of_pair = at::zeros(pair.sizes(), pair.options().dtype(type));
    const Part part = part_of(ring, owner, query.size(2));
    if (part.is_empty()) {
      return of_pair;
    }
    const KeysAndValues seen = run_of_pair(passing, part.keys);
    const ops::AttentionPartGradients more = part_backward(ring, part, dout, found, query, seen);
    run_of(own.query, part.queries).add_(more.query);
    const KeysAndValues of_seen = run_of_pair(of_pair, part.keys);
    of_seen.key.copy_(more.key);
    of_seen.value.copy_(more.value);
    return of_pair;
  });
  if (others.defined()) {
    own.key.add_(others[0].transpose(1, 2));
    own.value.add_(others[1].transpose(1, 2));
  }
  return own;
}

struct RingFunction : torch::autograd::Function<RingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const std::optional<Tensor>& sinks,
      const c10::intrusive_ptr<AttentionRing>& ring) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const bool by_parts = goes_by_parts(*ring, query, key);
    const Found found = by_parts ? forward_by_parts(*ring, query, key, value)
                                 : forward_by_tiles(*ring, query, at::stack({key, value}));
    if (sinks) {
      ops::add_sinks({found.out, found.log_sum}, *sinks);
    }
    const Tensor out = found.out.to(query.scalar_type());
    context->save_for_backward(
        {query, key, value, by_parts ? out : found.out, found.log_sum, sinks.value_or(Tensor())});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    context->saved_data["by_parts"] = by_parts;
    return out;
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto ring =
        c10::static_intrusive_pointer_cast<AttentionRing>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor &query = saved[0], &key = saved[1], &value = saved[2], &sinks = saved[5];
    const Found found{saved[3], saved[4]};
    const bool by_parts = context->saved_data["by_parts"].toBool();
    const bool is_dense = by_parts && gradients[0].stride(3) == 1;
    const Tensor dout = is_dense ? gradients[0] : gradients[0].contiguous();
    const ops::AttentionPartGradients made =
        by_parts ? backward_by_parts(*ring, dout, found, query, key, value)
                 : backward_by_tiles(*ring, dout, found, query, at::stack({key, value}));
    const auto type = query.scalar_type();
    return {
        made.query.to(type),
        made.key.to(type),
        made.value.to(type),
        sinks.defined() ? ops::sinks_gradient(dout, {found.out, found.log_sum}, sinks) : Tensor(),
        Tensor()};
  }
};

}  // namespace

void require_part(const nn::ForwardContext& context) {
  if (context.cache() != nullptr || context.inputs().whole_length == 0) {
    throw Error(
        ErrorKind::kInternal,
        "context-parallel attention needs a shard of a sequence and does not support a key-value "
        "cache");
  }
}

Tensor RingAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const nn::ForwardContext& context) const {
  require_part(context);
  auto ring = c10::make_intrusive<AttentionRing>();
  ring->part = part;
  ring->group = group;
  BlockOptions& options = ring->options;
  options.causal = causal;
  options.scale = scale;
  options.cap = cap;
  options.window = window;
  options.upcast = upcast;
  options.whole_length = context.inputs().whole_length;
  options.document_starts = context.inputs().document_starts;
  if (context.training() && dropout > 0) {
    options.dropout = dropout;
    options.dropout_keys = context.dropout_keys(site);
    options.first_head = first_head;
    options.total_heads = total_heads;
  }
  return RingFunction::apply(query, key, value, ops::if_defined(sinks), ring)
      .transpose(1, 2)
      .flatten(2);  // [B, L, H D]
}

}  // namespace lockstep::parallel
