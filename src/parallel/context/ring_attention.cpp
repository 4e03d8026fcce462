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
  /// Calls visit(queries, keys) for every pair of this rank's runs and those of `owner`.
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

/// What the queries [B, H, L, D] found, and of each the log of the sum of e^score, in the type of
/// the sums.
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

struct Gradients {
  Tensor query, pair;  // in the type of the sums
};

Gradients backward_by_tiles(
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
  return {dquery, dpair};
}

/// What of a rank's pair this rank's queries see, without windows. In zigzag order that is one
/// block: each its own, causal, for a rank's positions ascend; of an earlier rank the first chunk,
/// all of it and by all queries; of a later one both chunks, by the second chunk of the queries.
/// Where attention is not causal, all by all.
struct Part {
  PositionRun queries, keys;
  ops::PartSees sees = ops::PartSees::kAll;
  bool is_empty() const { return queries.count == 0 || keys.count == 0; }
};

Part part_of(const AttentionRing& ring, int owner, int64_t length) {
  const auto mine = ring.runs(ring.rank(), length), theirs = ring.runs(owner, length);
  const auto all = [](const std::vector<PositionRun>& runs) {
    PositionRun sum;
    for (const PositionRun& run : runs) {  // one, on a rank that is alone
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

/// Fused loops take parts without windows, documents, caps and dropout, of sequences that a rank's
/// share of is not too long.
bool goes_by_parts(const AttentionRing& ring, const Tensor& query, const Tensor& key) {
  const bool has_window =
      ring.options.window > 0 && ring.options.window < ring.options.whole_length;
  return !has_window && !ring.options.document_starts.defined() && ring.options.dropout == 0 &&
         ring.options.cap == 0 && ops::has_attention_part(query, key);
}

Found forward_by_parts(const AttentionRing& ring, const Tensor& query, const Tensor& pair) {
  const auto floats = query.options().dtype(at::kFloat);
  Found found{
      at::zeros(query.sizes(), floats), at::full(query.sizes().slice(0, 3), -INFINITY, floats)};
  visit_ring(ring, pair, [&](int owner, const Tensor& passing) {
    const Part part = part_of(ring, owner, query.size(2));
    if (part.is_empty()) {
      return;
    }
    const ops::AttentionPart more = ops::attention_part(
        run_of(query, part.queries),
        run_of(passing[0], part.keys),
        run_of(passing[1], part.keys),
        ring.options.scale,
        part.sees);
    Tensor out = run_of(found.out, part.queries), log_sum = run_of(found.log_sum, part.queries);
    if (owner == ring.rank()) {  // the first
      out.copy_(more.out);
      log_sum.copy_(more.log_sum);
      return;
    }
    const Tensor both = at::logaddexp(log_sum, more.log_sum);
    out.mul_((log_sum - both).exp_().unsqueeze(3))
        .add_(more.out * (more.log_sum - both).exp_().unsqueeze(3));
    log_sum.copy_(both);
  });
  return found;
}

Gradients backward_by_parts(
    const AttentionRing& ring,
    const Tensor& dout,
    const Found& found,
    const Tensor& query,
    const Tensor& pair) {
  const auto floats = pair.options().dtype(at::kFloat);
  const Tensor dquery = at::zeros(query.sizes(), floats);
  const Tensor out = found.out.to(query.scalar_type());
  const Tensor dpair = visit_ring_backward(ring, pair, [&](int owner, const Tensor& passing) {
    Tensor of_pair = at::zeros(pair.sizes(), floats);
    const Part part = part_of(ring, owner, query.size(2));
    if (part.is_empty()) {
      return of_pair;
    }
    const ops::AttentionPartGradients gradients = ops::attention_part_backward(
        run_of(dout, part.queries),
        {run_of(out, part.queries), run_of(found.log_sum, part.queries)},
        run_of(query, part.queries),
        run_of(passing[0], part.keys),
        run_of(passing[1], part.keys),
        ring.options.scale,
        part.sees);
    run_of(dquery, part.queries).add_(gradients.query);
    run_of(of_pair[0], part.keys).copy_(gradients.key);
    run_of(of_pair[1], part.keys).copy_(gradients.value);
    return of_pair;
  });
  return {dquery, dpair};
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
    const Tensor pair = at::stack({key, value});
    const bool by_parts = goes_by_parts(*ring, query, key);
    const Found found =
        by_parts ? forward_by_parts(*ring, query, pair) : forward_by_tiles(*ring, query, pair);
    if (sinks) {
      ops::add_sinks({found.out, found.log_sum}, *sinks);
    }
    const Tensor out = found.out.to(query.scalar_type());
    context->save_for_backward(
        {query, pair, by_parts ? out : found.out, found.log_sum, sinks.value_or(Tensor())});
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
    const Tensor &query = saved[0], &pair = saved[1], &sinks = saved[4];
    const Found found{saved[2], saved[3]};
    const Tensor dout = gradients[0].contiguous();
    const Gradients made = context->saved_data["by_parts"].toBool()
                               ? backward_by_parts(*ring, dout, found, query, pair)
                               : backward_by_tiles(*ring, dout, found, query, pair);
    const auto type = pair.scalar_type();
    return {
        made.query.to(query.scalar_type()),
        made.pair[0].to(type),
        made.pair[1].to(type),
        sinks.defined() ? ops::sinks_gradient(dout, {found.out, found.log_sum}, sinks) : Tensor(),
        Tensor()};
  }
};

}  // namespace

void require_part(const nn::ForwardContext& context) {
  if (context.cache() != nullptr || context.inputs().whole_length == 0) {
    throw Error(
        ErrorKind::kInternal,
        "context-parallel attention needs a part of a sequence, and takes no key-value cache");
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
