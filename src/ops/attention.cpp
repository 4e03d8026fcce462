// Attention: choice of the implementation, tiled attention, and visibility masks.
#include "ops/attention.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/attention_part.h"
#include "ops/attention_rows.h"
#include "ops/attention_vector.h"
#include "ops/cpu/host_loops.h"
#include "ops/dropout.h"
#include "ops/flash_attention.h"
#include "ops/one_query.h"
#include "ops/products.h"

namespace lockstep::ops {
namespace {

/// [.., G, S, D] -> [.., H, S, D]: repeats each of the G key-value heads for the H / G query heads
/// that share it.
Tensor repeated(const Tensor& x, int64_t heads) {
  const int64_t groups = heads / x.size(1);
  return groups == 1 ? x
                     : x.unsqueeze(2)
                           .expand({x.size(0), x.size(1), groups, x.size(2), x.size(3)})
                           .flatten(1, 2);
}

bool is_windowed(int64_t window, int64_t keys) {
  return window > 0 && window < keys;
}

struct Options {
  double scale, cap, dropout;
  int64_t window, first_head, total_heads;
  bool upcast, causal;
  Tensor starts;  // [B, T]: first token of each token's document; undefined if each row is one
                  // document
  Tensor ends;    // [B, T]: end of each token's document; only set for bidirectional attention
  Tensor sinks;   // [H]; undefined: no sinks
};

/// A block of rows and queries that tiled attention processes together. It covers the keys
/// [first_key, first_key + keys).
struct Tile {
  int64_t row, rows, query, queries, first_key, keys;
};

/// Returns the first key in the documents of a tile's queries. Returns 0 if the starts are on a
/// GPU, to avoid a copy to the host.
int64_t first_of_documents(
    const Tensor& starts, int64_t row, int64_t rows, int64_t query, int64_t queries) {
  return starts.defined() && starts.is_cpu()
             ? starts.narrow(0, row, rows).narrow(1, query, queries).min().item<int64_t>()
             : 0;
}

/// Returns the end of the documents of a tile's queries. Returns `keys` if the ends are on a GPU,
/// to avoid a copy to the host.
int64_t last_of_documents(
    const Tensor& ends, int64_t row, int64_t rows, int64_t query, int64_t queries, int64_t keys) {
  return ends.defined() && ends.is_cpu()
             ? ends.narrow(0, row, rows).narrow(1, query, queries).max().item<int64_t>()
             : keys;
}

/// Divides the attention into tiles. On a CPU, the scores of a tile fit in the caches; on a GPU,
/// there are few large tiles. Keys that are invisible to all queries of a tile are skipped.
std::vector<Tile> tiles_of(const Tensor& query, const Tensor& key, const Options& options) {
  const int64_t window = options.window;
  const bool on_cpu = query.device().is_cpu();
  const int64_t at_once = int64_t{1} << (on_cpu ? 20 : 27), most_queries = on_cpu ? 128 : 4096;
  const int64_t batch = query.size(0), length = query.size(2), past = key.size(2) - length;
  std::vector<Tile> tiles;
  const int64_t queries = std::min(most_queries, length);
  const int64_t of_row = std::max<int64_t>(query.size(1) * queries * key.size(2), 1);
  const int64_t rows = std::clamp<int64_t>(at_once / of_row, 1, std::max<int64_t>(batch, 1));
  for (int64_t row = 0; row < batch; row += rows) {
    const int64_t some = std::min(rows, batch - row);
    for (int64_t first = 0; first < length; first += queries) {
      const int64_t count = std::min(queries, length - first);
      const int64_t first_key = std::max(
          window > 0 ? std::max<int64_t>(past + first + 1 - window, 0) : 0,
          first_of_documents(options.starts, row, some, first, count));
      const int64_t last_key =
          options.causal ? past + first + count
                         : last_of_documents(options.ends, row, some, first, count, key.size(2));
      tiles.push_back({row, some, first, count, first_key, last_key - first_key});
    }
  }
  return tiles;
}

/// Dense views of a tile's tensors, in which the query heads that share a key-value head are
/// adjacent. n is rows x key-value heads; g is the number of queries per key-value head.
struct Parts {
  const Tile& tile;
  int64_t heads, kv_heads;

  /// [B, H, T, D] -> [n, g, D]
  Tensor queries(const Tensor& x) const {
    return x.narrow(0, tile.row, tile.rows)
        .narrow(2, tile.query, tile.queries)
        .reshape({tile.rows * kv_heads, heads / kv_heads * tile.queries, x.size(3)});
  }
  /// [B, Hkv, S, D] -> [n, keys, D], without a copy if x is dense
  Tensor keys(const Tensor& x) const {
    return x.narrow(0, tile.row, tile.rows)
        .view({tile.rows * kv_heads, x.size(2), x.size(3)})
        .narrow(1, tile.first_key, tile.keys);
  }
  /// by_head: [n, g, S] -> [rows, H, queries, keys]; by_query: [n, g, S] -> [rows H, queries,
  /// keys].
  Tensor by_head(const Tensor& scores) const {
    return scores.view({tile.rows, heads, tile.queries, tile.keys});
  }
  Tensor by_query(const Tensor& scores) const {
    return scores.view({tile.rows * heads, tile.queries, tile.keys});
  }
};

/// Softmax of a tile's scores.
struct Softmax {
  Tensor probabilities;  // [n, g, keys], in the type of the query
  Tensor slope;     // [n, g, keys]: derivative of the cap at each score; undefined without a cap
  Tensor of_sinks;  // [rows H, queries]: probability of the sinks; undefined without sinks
};

/// Returns cap * tanh(scale * scores / cap) in float32 and its derivative.
Softmax capped(Tensor scores, const Options& options) {
  if (scores.scalar_type() != at::kDouble) {
    scores = scores.to(at::kFloat);
  }
  scores.mul_(options.scale / options.cap).tanh_();
  Tensor slope = scores.square().neg_().add_(1);
  return {scores.mul_(options.cap), slope, {}};
}

Softmax softmax_of(
    const Parts& parts, const Tensor& query, const Tensor& key, const Options& options) {
  const Tile& tile = parts.tile;
  Tensor q = parts.queries(query), k = parts.keys(key);
  if (options.upcast && q.scalar_type() != at::kDouble) {
    q = q.to(at::kFloat);
    k = k.to(at::kFloat);
  }
  const bool has_cap = options.cap > 0;
  Softmax result{matrix_products(q, k.transpose(1, 2)), {}, {}};
  if (has_cap) {
    result = capped(result.probabilities, options);
  }
  Tensor by_query = parts.by_query(result.probabilities);
  const int64_t past = key.size(2) - query.size(2);
  const auto in_tile = [&](const Tensor& keys) {  // values of the tile's rows and queries, relative
                                                  // to the tile's first key
    return keys.defined()
               ? keys.narrow(0, tile.row, tile.rows).narrow(1, tile.query, tile.queries) -
                     tile.first_key
               : Tensor();
  };
  const Tensor of_sinks = softmax_visible(
      by_query,
      has_cap ? 1 : options.scale,
      {past + tile.query + 1 - tile.first_key,
       options.window,
       in_tile(options.starts),
       in_tile(options.ends),
       !options.causal && !options.ends.defined(),
       options.sinks});
  const auto type = query.scalar_type();
  return {result.probabilities.to(type), has_cap ? result.slope.to(type) : Tensor(), of_sinks};
}

/// Applies dropout to a tile's probabilities or to their gradient.
Tensor dropped(
    const Parts& parts, const Tensor& scores, const Options& options, const Tensor& keys) {
  if (options.dropout == 0) {
    return scores;
  }
  const Tile& tile = parts.tile;
  return dropout_of_probabilities(
             parts.by_head(scores),
             options.dropout,
             keys.narrow(0, tile.row, tile.rows),
             {options.first_head, tile.query, tile.first_key, options.total_heads})
      .view(scores.sizes());
}

Tensor tiled_forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& row_keys,
    const Options& options) {
  const Tensor k = key.contiguous(), v = value.contiguous();
  Tensor out = at::empty(query.sizes(), query.options());
  for (const Tile& tile : tiles_of(query, key, options)) {
    const Parts parts{tile, query.size(1), key.size(1)};
    const Tensor seen = softmax_of(parts, query, k, options).probabilities;
    const Tensor kept = dropped(parts, seen, options, row_keys);
    out.narrow(0, tile.row, tile.rows)
        .narrow(2, tile.query, tile.queries)
        .copy_(matrix_products(kept, parts.keys(v))
                   .view({tile.rows, query.size(1), tile.queries, -1}));
  }
  return out;
}

torch::autograd::tensor_list tiled_backward(
    const Tensor& dout,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& row_keys,
    const Options& options) {
  const Tensor k = key.contiguous(), v = value.contiguous();
  const bool is_low = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  // Gradients of keys and values are summed over the tiles in float32.
  const auto sums = key.options().dtype(is_low ? at::kFloat : query.scalar_type());
  const Tensor dkey = at::zeros(key.sizes(), sums), dvalue = at::zeros(key.sizes(), sums);
  Tensor dquery = at::empty(query.sizes(), query.options());
  Tensor dsinks = options.sinks.defined() ? at::zeros({query.size(1)}, sums) : Tensor();
  for (const Tile& tile : tiles_of(query, key, options)) {
    const Parts parts{tile, query.size(1), key.size(1)};
    const auto [seen, slope, of_sinks] = softmax_of(parts, query, k, options);
    const auto drop = [&](const Tensor& x) { return dropped(parts, x, options, row_keys); };
    const Tensor dout_tile = parts.queries(dout);  // [n, g, D]
    parts.keys(dvalue).add_(matrix_products(drop(seen).transpose(1, 2), dout_tile));
    Tensor dscores = drop(matrix_products(dout_tile, parts.keys(v).transpose(1, 2)));
    if (dsinks.defined()) {
      const Tensor mean = parts.by_query(dscores.to(dsinks.scalar_type()) * seen).sum(-1);
      dsinks.sub_(
          (of_sinks * mean).view({-1, query.size(1), tile.queries}).sum(at::IntArrayRef({0, 2})));
    }
    softmax_visible_backward(dscores, seen, options.scale);
    if (slope.defined()) {
      dscores.mul_(slope);
    }
    parts.keys(dkey).add_(matrix_products(dscores.transpose(1, 2), parts.queries(query)));
    dquery.narrow(0, tile.row, tile.rows)
        .narrow(2, tile.query, tile.queries)
        .copy_(matrix_products(dscores, parts.keys(k))
                   .view({tile.rows, query.size(1), tile.queries, -1}));
  }
  return {dquery, dkey.to(key.scalar_type()), dvalue.to(key.scalar_type()), dsinks};
}

Tensor ends_of(const Tensor& starts, bool causal) {
  return causal || !starts.defined() ? Tensor() : ends_of_documents(starts);
}

struct TiledAttention : torch::autograd::Function<TiledAttention> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& keys,
      double scale,
      double cap,
      double dropout,
      int64_t window,
      int64_t first_head,
      int64_t total_heads,
      bool upcast,
      bool causal,
      const std::optional<Tensor>& documents,
      const std::optional<Tensor>& sinks) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor starts = documents.value_or(Tensor());
    const Options options{
        scale,
        cap,
        dropout,
        window,
        first_head,
        total_heads,
        upcast,
        causal,
        starts,
        ends_of(starts, causal),
        sinks.value_or(Tensor())};
    context->save_for_backward({query, key, value, options.sinks});
    auto& saved = context->saved_data;
    saved["keys"] = keys;
    saved["scale"] = scale;
    saved["cap"] = cap;
    saved["dropout"] = dropout;
    saved["window"] = window;
    saved["first_head"] = first_head;
    saved["total_heads"] = total_heads;
    saved["upcast"] = upcast;
    saved["causal"] = causal;
    saved["starts"] = starts;
    return tiled_forward(query, key, value, keys, options);
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto& data = context->saved_data;
    const auto saved = context->get_saved_variables();
    const Options options{
        data["scale"].toDouble(),
        data["cap"].toDouble(),
        data["dropout"].toDouble(),
        data["window"].toInt(),
        data["first_head"].toInt(),
        data["total_heads"].toInt(),
        data["upcast"].toBool(),
        data["causal"].toBool(),
        data["starts"].toTensor(),
        ends_of(data["starts"].toTensor(), data["causal"].toBool()),
        saved[3]};
    auto results = tiled_backward(
        gradients[0], saved[0], saved[1], saved[2], data["keys"].toTensor(), options);
    const Tensor of_sinks = std::exchange(results.back(), Tensor());
    results.resize(13);
    results.push_back(of_sinks.defined() ? of_sinks.to(saved[3].scalar_type()) : Tensor());
    return results;
  }
};

bool fits_as_trees(const AttentionOptions& options) {
  const Tensor& until = options.seen_until;
  return !until.defined() ||
         (options.document_starts.defined() && until.scalar_type() == at::kLong &&
          until.sizes() == options.document_starts.sizes() && options.causal &&
          options.window == 0 && options.cap == 0 && options.dropout == 0 && !options.upcast &&
          !options.sinks.defined());
}

void check_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const Tensor &starts = options.document_starts, &sinks = options.sinks;
  const bool fits =
      query.dim() == 4 && key.dim() == 4 && key.sizes() == value.sizes() &&
      query.size(0) == key.size(0) && query.size(3) == key.size(3) && key.size(1) > 0 &&
      query.size(1) % key.size(1) == 0 && query.size(2) <= key.size(2) &&
      (!starts.defined() || (starts.sizes() == at::IntArrayRef{query.size(0), query.size(2)} &&
                             starts.scalar_type() == at::kLong && query.size(2) == key.size(2))) &&
      fits_as_trees(options) &&
      (!sinks.defined() || sinks.sizes() == at::IntArrayRef{query.size(1)});
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "invalid attention inputs: queries {}, keys {}, values {}, document starts {}, sinks "
            "{}",
            fmt::join(query.sizes(), "x"),
            fmt::join(key.sizes(), "x"),
            fmt::join(value.sizes(), "x"),
            starts.defined() ? fmt::format("{}", fmt::join(starts.sizes(), "x")) : "none",
            sinks.defined() ? fmt::format("{}", fmt::join(sinks.sizes(), "x")) : "none"));
  }
}

}  // namespace

Tensor visible_keys(
    int64_t queries,
    int64_t keys,
    int64_t window,
    at::Device device,
    const Tensor& document_starts,
    const Tensor& seen_until) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const Tensor query = at::arange(keys - queries, keys, options).unsqueeze(1);
  const Tensor key = at::arange(keys, options);
  Tensor seen = key <= query;  // [T, S]
  if (window > 0) {
    seen = seen.logical_and(key > query - window);
  }
  if (!document_starts.defined()) {
    return seen;
  }
  seen = (key >= document_starts.unsqueeze(2)).logical_and(seen);  // [B, T, S]
  if (seen_until.defined()) {
    seen = seen.logical_and(query < seen_until.unsqueeze(1));
  }
  return seen.unsqueeze(1);
}

Tensor ends_of_documents(const Tensor& starts) {
  return at::searchsorted(starts.contiguous(), starts, /*out_int32=*/false, /*right=*/true);
}

namespace {

/// Returns the mask for packed rows with bidirectional attention, [B, 1, T, S] bool: tokens attend
/// only within their document.
Tensor visible_both_ways(const Tensor& starts) {
  return starts.unsqueeze(2).eq(starts.unsqueeze(1)).unsqueeze(1);
}

}  // namespace

Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const int64_t length = query.size(2), keys = key.size(2);
  if (length == 1 && is_windowed(options.window, keys)) {
    const int64_t first = keys - options.window;
    AttentionOptions all = options;
    all.window = 0;
    return fused_attention(
        query, key.narrow(2, first, options.window), value.narrow(2, first, options.window), all);
  }
  std::optional<Tensor> mask;
  const Tensor& starts = options.document_starts;
  const bool needs_mask =
      options.causal
          ? length > 1 && (length != keys || is_windowed(options.window, keys) || starts.defined())
          : starts.defined();
  if (needs_mask && flash_hides_by_itself(query, key, options)) {
    return flash_attention(query, key, value, options);
  }
  if (needs_mask) {
    mask =
        options.causal
            ? visible_keys(length, keys, options.window, query.device(), starts, options.seen_until)
            : visible_both_ways(starts);
  }
  const bool causal = options.causal && length > 1 && !needs_mask;
  const bool in_groups =
      key.size(1) < query.size(1) && !has_host_loops(query) &&
      takes_groups(at::_fused_sdp_choice(
          query, key, value, mask, 0.0, causal, options.scale, /*enable_gqa=*/true));
  return at::scaled_dot_product_attention(
      query,
      in_groups ? key : repeated(key, query.size(1)),
      in_groups ? value : repeated(value, query.size(1)),
      mask,
      /*dropout_p=*/0.0,
      causal,
      options.scale,
      in_groups);
}

Tensor tiled_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  check_attention(query, key, value, options);
  const Tensor keys =
      options.dropout > 0 ? options.dropout_keys : at::zeros({query.size(0)}, at::kLong);
  if (!keys.defined() || keys.size(0) != query.size(0)) {
    throw Error(ErrorKind::kInternal, "attention with dropout requires a random key for each row");
  }
  return TiledAttention::apply(
      query,
      key,
      value,
      keys,
      options.scale,
      options.cap,
      options.dropout,
      options.window,
      options.first_head,
      options.total_heads,
      options.upcast,
      options.causal,
      if_defined(options.document_starts),
      if_defined(options.sinks));
}

namespace {

/// Attention over rows of documents with common prefixes that are stored as trees.
Tensor tree_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const bool needs_gradient =
      at::GradMode::is_enabled() &&
      (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (needs_gradient || !has_vector_attention(query, key, options)) {
    return fused_attention(query, key, value, options);
  }
  return attention_part(
             query,
             key,
             value,
             options.scale,
             PartSees::kEarlier,
             /*window=*/0,
             options.document_starts,
             options.seen_until)
      .out;
}

/// Returns true for token generation: a single query per head that attends to all keys or to a
/// window.
bool is_one_query(const Tensor& query, const AttentionOptions& options) {
  const auto type = query.scalar_type();
  return query.size(2) == 1 && has_host_loops(query) && !at::GradMode::is_enabled() &&
         (type == at::kFloat || type == at::kDouble || type == at::kBFloat16) &&
         options.dropout == 0 && options.cap == 0 && !options.sinks.defined();
}

}  // namespace

Tensor attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  check_attention(query, key, value, options);
  if (options.seen_until.defined()) {
    return tree_attention(query, key, value, options);
  }
  if (has_vector_attention(query, key, options)) {
    return vector_attention(query, key, value, options);
  }
  if (is_one_query(query, options)) {
    const int64_t keys = key.size(2);
    const int64_t seen = is_windowed(options.window, keys) ? options.window : keys;
    return one_query_attention(
        query, key.narrow(2, keys - seen, seen), value.narrow(2, keys - seen, seen), options.scale);
  }
  const auto type = query.scalar_type();
  const bool upcast = options.upcast && type != at::kFloat && type != at::kDouble;
  // On one core, tiles take at most half the time of ATen's kernel in bfloat16 and with a window,
  // and the same time in float32. Tiles are also faster if keys of other documents must be masked.
  const bool tiles_are_faster =
      has_host_loops(query) && query.size(2) > 1 &&
      (type == at::kBFloat16 || is_windowed(options.window, key.size(2)) ||
       options.document_starts.defined());
  return options.dropout > 0 || options.cap > 0 || upcast || options.sinks.defined() ||
                 tiles_are_faster
             ? tiled_attention(query, key, value, options)
             : fused_attention(query, key, value, options);
}

}  // namespace lockstep::ops
