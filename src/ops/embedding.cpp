// Embedding lookup, and its gradient summed in float32.
#include "ops/embedding.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

/// Computes one row of the table's gradient as the sum of the gradient rows listed in `from`.
template <class T>
struct SumRows {
  LOCKSTEP_INLINE static void run(
      const T* gradient, const int64_t* from, int64_t count, T* to, int64_t size) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      Floats total{};
      for (int64_t k = 0; k < count; ++k) {
        total += vector::load(gradient + from[k] * size + i);
      }
      vector::store(to + i, total);
    }
    for (; i < size; ++i) {
      float total = 0;
      for (int64_t k = 0; k < count; ++k) {
        total += vector::widen(gradient[from[k] * size + i]);
      }
      vector::narrow(total, to[i]);
    }
  }
};

/// The distinct tokens of `ids` in ascending order, and the positions of each token.
struct Occurrences {
  std::vector<int64_t> order;   // positions in `ids`, sorted by token
  std::vector<int64_t> starts;  // start of each token's run in `order`, and the end of the last run
  std::vector<int64_t> tokens;
};

Occurrences occurrences_of(const Tensor& ids, int64_t padding_row) {
  const auto* id = ids.const_data_ptr<int64_t>();
  Occurrences found;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] != padding_row) {
      found.order.push_back(i);
    }
  }
  std::stable_sort(
      found.order.begin(), found.order.end(), [&](int64_t a, int64_t b) { return id[a] < id[b]; });
  for (size_t i = 0; i < found.order.size(); ++i) {
    if (i == 0 || id[found.order[i]] != id[found.order[i - 1]]) {
      found.starts.push_back(static_cast<int64_t>(i));
      found.tokens.push_back(id[found.order[i]]);
    }
  }
  found.starts.push_back(static_cast<int64_t>(found.order.size()));
  return found;
}

enum class Rows { kByToken, kDense };

/// Sums the gradient rows of each token into the token's row of `table`, or into consecutive rows.
template <class T>
void sum_on_cpu(const Tensor& gradient, const Occurrences& found, Rows rows, Tensor& table) {
  const auto* in = static_cast<const T*>(gradient.const_data_ptr());
  auto* out = static_cast<T*>(table.mutable_data_ptr());
  const int64_t size = table.size(1), count = static_cast<int64_t>(found.tokens.size());
  at::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      vector::dispatch<SumRows<T>>(
          in,
          found.order.data() + found.starts[at],
          found.starts[at + 1] - found.starts[at],
          out + (rows == Rows::kDense ? i : found.tokens[at]) * size,
          size);
    }
  });
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& weight,
      const Tensor& ids,
      int64_t padding_row,
      EmbeddingGradient form) {
    context->saved_data["ids"] = ids;
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["padding_row"] = padding_row;
    context->saved_data["is_sparse"] = form == EmbeddingGradient::kRows;
    return at::embedding(weight, ids);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    auto& saved = context->saved_data;
    const Tensor ids = saved["ids"].toTensor().contiguous();
    const Tensor gradient = gradients[0].contiguous();
    const Occurrences found = occurrences_of(ids, saved["padding_row"].toInt());
    const bool is_sparse = saved["is_sparse"].toBool();
    const std::vector<int64_t> sizes{saved["rows"].toInt(), gradient.size(-1)};
    const auto count = static_cast<int64_t>(found.tokens.size());
    Tensor table = is_sparse ? at::empty({count, sizes[1]}, gradient.options())
                             : at::zeros(sizes, gradient.options());
    (gradient.scalar_type() == at::kFloat
         ? sum_on_cpu<float>
         : sum_on_cpu<vector::Bfloat16>)(gradient,
                                         found,
                                         is_sparse ? Rows::kDense : Rows::kByToken,
                                         table);
    if (is_sparse) {
      const Tensor tokens = at::tensor(found.tokens, at::kLong).unsqueeze(0);
      table = at::sparse_coo_tensor(tokens, table, sizes)._coalesced_(true);
    }
    return {table, Tensor(), Tensor(), Tensor()};
  }
};

void check_ids(const Tensor& ids, int64_t rows) {
  const Tensor flat = ids.contiguous();
  const auto* id = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] < 0 || id[i] >= rows) {
      throw Error(
          ErrorKind::kData,
          fmt::format("token id {} is not in the model's vocabulary of {}", id[i], rows),
          "use the tokenizer that belongs to the model, or model.resize_embeddings=true");
    }
  }
}

}  // namespace

Tensor embedding(
    const Tensor& weight, const Tensor& ids, int64_t padding_row, EmbeddingGradient form) {
  if (ids.device().is_cpu() && weight.device().is_cpu()) {
    check_ids(ids, weight.size(0));
    if (has_host_loops(weight) &&
        (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16)) {
      return EmbeddingFunction::apply(weight, ids, padding_row, form);
    }
  }
  return at::embedding(weight, ids, padding_row);
}

}  // namespace lockstep::ops
