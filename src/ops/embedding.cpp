#include "ops/embedding.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/vector.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

/// One row of the table's gradient: the sum of the gradient rows `from` lists.
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

template <class T>
void sum_on_cpu(const Tensor& gradient, const Tensor& ids, int64_t padding_row, Tensor& table) {
  const auto* id = ids.const_data_ptr<int64_t>();
  std::vector<int64_t> order(static_cast<size_t>(ids.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return id[a] < id[b]; });
  std::vector<int64_t> starts;  // of each token's run in `order`
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || id[order[i]] != id[order[i - 1]]) {
      starts.push_back(static_cast<int64_t>(i));
    }
  }
  starts.push_back(ids.numel());
  const auto* in = static_cast<const T*>(gradient.const_data_ptr());
  auto* out = static_cast<T*>(table.mutable_data_ptr());
  const int64_t size = table.size(1);
  at::parallel_for(0, static_cast<int64_t>(starts.size()) - 1, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = starts[static_cast<size_t>(i)];
      const int64_t token = id[order[static_cast<size_t>(first)]];
      if (token != padding_row) {
        vector::dispatch<SumRows<T>>(
            in,
            order.data() + first,
            starts[static_cast<size_t>(i) + 1] - first,
            out + token * size,
            size);
      }
    }
  });
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& weight,
      const Tensor& ids,
      int64_t padding_row) {
    context->saved_data["ids"] = ids;
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["padding_row"] = padding_row;
    return at::embedding(weight, ids);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    auto& saved = context->saved_data;
    const Tensor ids = saved["ids"].toTensor().contiguous();
    const Tensor gradient = gradients[0].contiguous();
    Tensor table = at::zeros({saved["rows"].toInt(), gradient.size(-1)}, gradient.options());
    const int64_t padding_row = saved["padding_row"].toInt();
    if (gradient.scalar_type() == at::kFloat) {
      sum_on_cpu<float>(gradient, ids, padding_row, table);
    } else {
      sum_on_cpu<vector::Bfloat16>(gradient, ids, padding_row, table);
    }
    return {table, Tensor(), Tensor()};
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

Tensor embedding(const Tensor& weight, const Tensor& ids, int64_t padding_row) {
  if (ids.device().is_cpu() && weight.device().is_cpu()) {
    check_ids(ids, weight.size(0));
    if (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16) {
      return EmbeddingFunction::apply(weight, ids, padding_row);
    }
  }
  return at::embedding(weight, ids, padding_row);
}

}  // namespace lockstep::ops
