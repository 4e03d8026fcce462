// Blockwise attention with a running maximum and sum.
#include "parallel/context/attention_block.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/dropout.h"
#include "ops/products.h"

namespace lockstep::parallel {
namespace {

/// Finite value below every score; marks queries that have seen no key.
constexpr double kNothing = -1e30;
/// Limits of a tile: scores over all rows and heads, keys, and minimum number of queries.
constexpr int64_t kScores = int64_t{1} << 21, kKeys = 1024, kLeastQueries = 32;

struct Tile {
  int64_t query, queries, key, keys;  // ranges within the block
};

/// Returns the document starts of a block's queries, [B, T].
Tensor starts_of(const BlockPlace& place, int64_t queries, const BlockOptions& options) {
  return options.document_starts.narrow(1, place.first_query, queries);
}

/// Returns true if the first query's document, and therefore every later one, starts after `key`.
bool begin_behind(int64_t key, int64_t query, const BlockOptions& options) {
  const Tensor& starts = options.document_starts;
  return starts.defined() && starts.is_cpu() && starts.select(1, query).min().item<int64_t>() > key;
}

/// Calls visit(tile) for each tile of a block that has at least one visible query-key pair.
template <class Visit>
void visit_tiles(
    const Tensor& query,
    const Tensor& key,
    const BlockPlace& place,
    const BlockOptions& options,
    Visit&& visit) {
  const int64_t keys = std::min(kKeys, key.size(2));
  const int64_t of_query = std::max<int64_t>(query.size(0) * query.size(1) * keys, 1);
  const int64_t queries = std::max(kLeastQueries, kScores / of_query);
  for (int64_t q = 0; q < query.size(2); q += queries) {
    const int64_t count = std::min(queries, query.size(2) - q);
    const int64_t first = place.first_query + q, last = first + count - 1;
    for (int64_t k = 0; k < key.size(2); k += keys) {
      const int64_t some = std::min(keys, key.size(2) - k);
      const int64_t first_key = place.first_key + k, last_key = first_key + some - 1;
      const bool is_ahead = options.causal && first_key > last;
      const bool is_behind = options.window > 0 && last_key <= first - options.window;
      if (!is_ahead && !is_behind && !begin_behind(last_key, first, options)) {
        visit(Tile{q, count, k, some});
      }
    }
  }
}

/// [B, H, T, D] -> [B Hkv, G T, D]: groups the queries by key-value head.
Tensor by_key_head(const Tensor& x, int64_t kv_heads) {
  return x.reshape({x.size(0) * kv_heads, x.size(1) / kv_heads * x.size(2), x.size(3)});
}

/// [B, Hkv, S, D] -> [B Hkv, S, D]
Tensor flat_heads(const Tensor& x) {
  return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)});
}

/// Returns the scores [B, H, T, S] of a tile, with -Inf for invisible keys. If a soft cap is set
/// and `slope` is given, `slope` receives the derivative of the capping function.
Tensor scores_of(
    const Tensor& query,
    const Tensor& key,
    const BlockPlace& place,
    const BlockOptions& options,
    Tensor* slope = nullptr) {
  const auto type = sum_type(query);
  Tensor q = by_key_head(query, key.size(1)), k = flat_heads(key);
  if (options.upcast) {
    q = q.to(type);
    k = k.to(type);
  }
  const int64_t queries = query.size(2), keys = key.size(2);
  Tensor scores = ops::matrix_products(q, k.transpose(1, 2))
                      .to(type)
                      .mul_(options.scale)
                      .view({query.size(0), query.size(1), queries, keys});
  if (options.cap > 0) {
    scores.div_(options.cap).tanh_();
    if (slope != nullptr) {
      *slope = scores.square().neg_().add_(1);
    }
    scores.mul_(options.cap);
  }
  if (!options.causal) {
    const Tensor& starts = options.document_starts;
    if (starts.defined()) {  // [B, 1, T, S]
      const Tensor of_keys = starts.narrow(1, place.first_key, keys).unsqueeze(1);
      scores.masked_fill_(
          starts_of(place, queries, options).unsqueeze(2).ne(of_keys).unsqueeze(1), -INFINITY);
    }
    return scores;
  }
  const bool hides_ahead = place.first_key + keys - 1 > place.first_query;
  const bool hides_behind =
      options.window > 0 && place.first_key <= place.first_query + queries - 1 - options.window;
  if (hides_ahead || hides_behind || options.document_starts.defined()) {
    const auto longs = at::TensorOptions().dtype(at::kLong).device(query.device());
    const Tensor at_query =
        at::arange(place.first_query, place.first_query + queries, longs).unsqueeze(1);
    const Tensor at_key = at::arange(place.first_key, place.first_key + keys, longs);
    Tensor hidden = at_key > at_query;  // [T, S]
    if (options.window > 0) {
      hidden = hidden.logical_or(at_key <= at_query - options.window);
    }
    if (options.document_starts.defined()) {  // [B, 1, T, S]
      hidden = (at_key < starts_of(place, queries, options).unsqueeze(2))
                   .logical_or(hidden)
                   .unsqueeze(1);
    }
    scores.masked_fill_(hidden, -INFINITY);
  }
  return scores;
}

Tensor dropped(const Tensor& x, const BlockPlace& place, const BlockOptions& options) {
  if (options.dropout == 0) {
    return x;
  }
  return ops::dropout_of_probabilities(
      x.contiguous(),
      options.dropout,
      options.dropout_keys,
      {options.first_head, place.first_query, place.first_key, options.total_heads});
}

/// [B, H, T, S] x [B, Hkv, S, D] -> [B, H, T, D], in the accumulation type.
Tensor weighted(const Tensor& weights, const Tensor& values, at::ScalarType type) {
  const Tensor w = by_key_head(weights, values.size(1)).to(values.scalar_type());
  return ops::matrix_products(w, flat_heads(values))
      .to(type)
      .view({weights.size(0), weights.size(1), weights.size(2), values.size(3)});
}

/// Transposed product: [B, H, T, S] x [B, H, T, D] -> [B, Hkv, S, D].
Tensor weighted_by_key(const Tensor& weights, const Tensor& x, int64_t kv_heads) {
  const Tensor w = by_key_head(weights, kv_heads).to(x.scalar_type());
  return ops::matrix_products(w.transpose(1, 2), by_key_head(x, kv_heads))
      .to(sum_type(x))
      .view({x.size(0), kv_heads, weights.size(3), x.size(3)});
}

}  // namespace

SeenSoFar SeenSoFar::nothing(const Tensor& query) {
  const auto options = query.options().dtype(sum_type(query));
  const auto rows = query.sizes().slice(0, 3);
  return {
      at::zeros(query.sizes(), options),
      at::zeros(rows, options),
      at::full(rows, kNothing, options)};
}

SeenSoFar SeenSoFar::narrow(int64_t begin, int64_t count) const {
  return {
      sum.narrow(2, begin, count), weight.narrow(2, begin, count), peak.narrow(2, begin, count)};
}

Tensor SeenSoFar::output() const {
  return sum / weight.clamp_min(1e-30).unsqueeze(-1);
}

Tensor SeenSoFar::log_sum() const {
  return weight.clamp_min(1e-30).log().add_(peak);
}

void see_scores(
    SeenSoFar& seen,
    const Tensor& scores,
    const std::function<Tensor(const Tensor& weights)>& weigh) {
  const Tensor peak = at::maximum(seen.peak, scores.amax(3));
  const Tensor weights = scores.sub_(peak.unsqueeze(3)).exp_();
  const Tensor shrink = (seen.peak - peak).exp_();
  seen.weight.mul_(shrink).add_(weights.sum(3));
  seen.sum.mul_(shrink.unsqueeze(3)).add_(weigh(weights));
  seen.peak.copy_(peak);
}

void see_block(
    SeenSoFar& seen,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const BlockPlace& place,
    const BlockOptions& options) {
  visit_tiles(query, key, place, options, [&](const Tile& tile) {
    const Tensor q = query.narrow(2, tile.query, tile.queries);
    const Tensor k = key.narrow(2, tile.key, tile.keys);
    const BlockPlace at{place.first_query + tile.query, place.first_key + tile.key};
    SeenSoFar rows = seen.narrow(tile.query, tile.queries);
    see_scores(rows, scores_of(q, k, at, options), [&](const Tensor& weights) {
      return weighted(
          dropped(weights, at, options),
          value.narrow(2, tile.key, tile.keys),
          rows.sum.scalar_type());
    });
  });
}

void see_block_backward(
    BlockGradients& gradients,
    const Tensor& output_gradient,
    const Tensor& log_sum,
    const Tensor& dot,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const BlockPlace& place,
    const BlockOptions& options) {
  const int64_t kv_heads = key.size(1);
  const auto type = sum_type(query);
  visit_tiles(query, key, place, options, [&](const Tile& tile) {
    const auto queries = [&](const Tensor& x) { return x.narrow(2, tile.query, tile.queries); };
    const auto keys = [&](const Tensor& x) { return x.narrow(2, tile.key, tile.keys); };
    const BlockPlace at{place.first_query + tile.query, place.first_key + tile.key};
    const Tensor q = queries(query), k = keys(key), dout = queries(output_gradient);
    Tensor slope;
    const Tensor probabilities =
        scores_of(q, k, at, options, &slope).sub_(queries(log_sum).unsqueeze(3)).exp_();
    keys(gradients.value)
        .add_(weighted_by_key(dropped(probabilities, at, options), dout, kv_heads));
    const Tensor of_probabilities =
        ops::matrix_products(by_key_head(dout, kv_heads), flat_heads(keys(value)).transpose(1, 2))
            .to(type)
            .view(probabilities.sizes());
    Tensor of_scores = dropped(of_probabilities, at, options)
                           .sub(queries(dot).unsqueeze(3))
                           .mul_(probabilities)
                           .mul_(options.scale);
    if (slope.defined()) {
      of_scores.mul_(slope);
    }
    queries(gradients.query).add_(weighted(of_scores, k, type));
    keys(gradients.key).add_(weighted_by_key(of_scores, q, kv_heads));
  });
}

}  // namespace lockstep::parallel
