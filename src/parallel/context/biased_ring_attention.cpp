// Ring attention with an additive bias and a mask.
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/biased_attention.h"
#include "ops/products.h"
#include "parallel/context/attention_block.h"
#include "parallel/context/ring.h"
#include "parallel/context/ring_attention.h"

namespace lockstep::parallel {
namespace {

struct BiasedRing final : Ring {
  ops::BiasedAttentionOptions options;
  int64_t whole_queries = 0, whole_keys = 0;
  Tensor visible;  // bool, broadcasts to [B, H, L, S]; undefined: all keys are visible
  bool has_bias = false;

  /// Calls visit(queries, keys) for each pair of a position run of this rank and one of rank
  /// `owner`.
  template <class Visit>
  void visit_pairs(int owner, int64_t queries, int64_t keys, Visit&& visit) const {
    for (const PositionRun& q : runs_of(rank(), queries, whole_queries)) {
      for (const PositionRun& k : runs_of(owner, keys, whole_keys)) {
        if (q.count > 0 && k.count > 0) {
          visit(q, k);
        }
      }
    }
  }
};

/// Returns the slice of x ([.., L or 1, S or 1]) for a run of this rank's queries and a run of
/// keys.
Tensor block_of(const Tensor& x, const PositionRun& q, const PositionRun& k) {
  const Tensor rows = x.size(-2) == 1 ? x : x.narrow(-2, q.local, q.count);
  return x.size(-1) == 1 ? rows : rows.narrow(-1, k.whole, k.count);
}

/// Returns the scores [B, H, t, s], with -Inf for invisible keys.
Tensor scores_of(
    const BiasedRing& ring,
    const Tensor& query,
    const Tensor& key,
    const Tensor& bias,
    const PositionRun& q,
    const PositionRun& k) {
  Tensor scores =
      ops::matrix_products(run_of(query, q), run_of(key, k).transpose(2, 3)).to(sum_type(query));
  if (ring.options.scale != 1) {
    scores.mul_(ring.options.scale);
  }
  if (ring.has_bias) {
    scores.add_(block_of(bias, q, k));
  }
  if (ring.visible.defined()) {
    scores.masked_fill_(block_of(ring.visible, q, k).logical_not(), -INFINITY);
  }
  return scores;
}

struct BiasedRingFunction : torch::autograd::Function<BiasedRingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& bias,
      const c10::intrusive_ptr<BiasedRing>& ring) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor pair = at::stack({key, value});
    SeenSoFar seen = SeenSoFar::nothing(query);
    visit_ring(*ring, pair, [&](int owner, const Tensor& passing) {
      ring->visit_pairs(
          owner, query.size(2), key.size(2), [&](const PositionRun& q, const PositionRun& k) {
            SeenSoFar rows = seen.narrow(q.local, q.count);
            see_scores(
                rows, scores_of(*ring, query, passing[0], bias, q, k), [&](const Tensor& weights) {
                  return ops::matrix_products(
                      dropped(*ring, weights, q, k).to(passing.scalar_type()),
                      run_of(passing[1], k));
                });
          });
    });
    const Tensor out = seen.output();
    context->save_for_backward({query, pair, bias, out, seen.log_sum()});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return out.to(query.scalar_type());
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto ring =
        c10::static_intrusive_pointer_cast<BiasedRing>(context->saved_data["ring"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor &query = saved[0], &pair = saved[1], &bias = saved[2], &log_sum = saved[4];
    const Tensor& dout = gradients[0];
    const Tensor dot = (saved[3] * dout).sum(3, /*keepdim=*/true);
    const auto sums = pair.options().dtype(log_sum.scalar_type());
    const Tensor dquery = at::zeros(query.sizes(), sums), dbias = at::zeros(bias.sizes(), sums);
    const Tensor dpair = visit_ring_backward(*ring, pair, [&](int owner, const Tensor& passing) {
      Tensor of_pair = at::zeros(pair.sizes(), sums);
      ring->visit_pairs(
          owner, query.size(2), pair.size(3), [&](const PositionRun& q, const PositionRun& k) {
            const Tensor key = run_of(passing[0], k), value = run_of(passing[1], k);
            const Tensor dout_run = run_of(dout, q);
            const Tensor probabilities = scores_of(*ring, query, passing[0], bias, q, k)
                                             .sub_(run_of(log_sum, q).unsqueeze(3))
                                             .exp_();  // [B, H, t, s]
            run_of(of_pair[1], k)
                .add_(ops::matrix_products(
                    dropped(*ring, probabilities, q, k).to(value.scalar_type()).transpose(2, 3),
                    dout_run));
            const Tensor of_scores =
                dropped(
                    *ring,
                    ops::matrix_products(dout_run, value.transpose(2, 3)).to(sum_type(query)),
                    q,
                    k)
                    .sub(run_of(dot, q))
                    .mul_(probabilities);
            if (ring->has_bias) {
              block_of(dbias, q, k).add_(of_scores.sum(0));
            }
            const Tensor of_products = (of_scores * ring->options.scale).to(query.scalar_type());
            run_of(dquery, q).add_(ops::matrix_products(of_products, key));
            run_of(of_pair[0], k)
                .add_(ops::matrix_products(of_products.transpose(2, 3), run_of(query, q)));
          });
      return of_pair;
    });
    const auto type = pair.scalar_type();
    return {
        dquery.to(query.scalar_type()),
        dpair[0].to(type),
        dpair[1].to(type),
        ring->has_bias ? dbias.to(bias.scalar_type()) : Tensor(),
        Tensor()};
  }

 private:
  static Tensor dropped(
      const BiasedRing& ring, const Tensor& x, const PositionRun& q, const PositionRun& k) {
    return ops::biased_attention_dropout(x.contiguous(), ring.options, q.whole, k.whole);
  }
};

}  // namespace

Tensor BiasedRingAttention::forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    const Tensor& visible,
    const nn::ForwardContext& context) const {
  require_part(context);
  auto ring = c10::make_intrusive<BiasedRing>();
  ring->part = part;
  ring->group = group;
  const auto whole = [&](Sequence sequence) {
    return sequence == Sequence::kSource ? context.inputs().whole_source_length
                                         : context.inputs().whole_length;
  };
  ring->whole_queries = whole(queries);
  ring->whole_keys = whole(keys);
  ring->visible = visible;
  ring->has_bias = bias.defined();
  if (context.training() && dropout > 0) {
    ring->options.dropout = dropout;
    ring->options.dropout_keys = context.dropout_keys(site);
    ring->options.first_head = first_head;
    ring->options.total_heads = total_heads;
  }
  const Tensor given = bias.defined() ? bias : at::empty({0}, query.options());
  return BiasedRingFunction::apply(query, key, value, given, ring)
      .transpose(1, 2)
      .flatten(2);  // [B, L, H D]
}

}  // namespace lockstep::parallel
