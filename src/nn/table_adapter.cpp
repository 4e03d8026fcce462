// Adapters of embedding and head tables.
#include "nn/table_adapter.h"

#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/layers.h"
#include "ops/embedding.h"

namespace lockstep::nn {

Tensor TableAdapter::sizes(const Tensor& weight) const {
  Tensor squares;
  {
    const at::NoGradGuard no_grad;
    squares = at::addmm(weight.to(at::kFloat), outer(), inner(), 1, scale)
                  .square()
                  .sum(of_embedding ? 0 : 1);
    if (of_embedding && sum_over_rows) {
      squares = sum_over_rows(squares);
    }
  }
  return magnitudes / squares.sqrt();
}

Tensor TableAdapter::places_of(const Tensor& ids, int64_t table_rows) const {
  Tensor places = at::full({table_rows}, -1, at::kLong);
  auto place = places.accessor<int64_t, 1>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t row = tokens[i] - first;
    if (row >= 0 && row < table_rows) {
      place[row] = static_cast<int64_t>(i);
    }
  }
  return places.to(ids.device()).index_select(0, ids.flatten()).view_as(ids);
}

Tensor TableAdapter::look_up(
    const Tensor& weight, const Tensor& found, const Tensor& ids, int64_t padding_row) const {
  if (!are_on) {
    return found;
  }
  const Tensor padding = ids.eq(padding_row).unsqueeze(-1);
  const auto without_padding = [&](const Tensor& x) {
    return padding_row < 0 ? x : at::where(padding, x.detach(), x);
  };
  if (rows.defined()) {
    const Tensor places = places_of(ids, weight.size(0));
    const Tensor own = without_padding(ops::embedding(rows, places.clamp_min(0)));
    return at::where(places.ge(0).unsqueeze(-1), own.to(found.scalar_type()), found);
  }
  std::vector<int64_t> sizes_of_ids = ids.sizes().vec();
  sizes_of_ids.push_back(a.size(0));
  const Tensor of_ids = a.index_select(1, ids.flatten()).t().reshape(sizes_of_ids);
  const Tensor y = found + at::matmul(without_padding(of_ids), inner()) * scale;
  return (decomposes ? y * sizes(weight) : y).to(found.scalar_type());
}

TableAdapter::Operands TableAdapter::operands(
    const Tensor& states, const Tensor& weight, const Tensor& drawn) const {
  if (!are_on) {
    return {states, weight};
  }
  const auto type = weight.scalar_type();
  if (rows.defined()) {
    const Tensor places = places_of(at::arange(weight.size(0)), weight.size(0));
    const Tensor replaced = places.ge(0).nonzero().squeeze(1);
    const Tensor own = rows.index_select(0, places.index_select(0, replaced).to(rows.device()));
    return {states, weight.index_copy(0, replaced.to(weight.device()), own.to(type))};
  }
  const Tensor dropped = dropout->apply(states, drawn);
  const Tensor of_factors = at::matmul(dropped.to(a.scalar_type()), inner().t()) * scale;
  std::vector<Tensor> columns{weight}, parts{states};
  Tensor factors = outer();
  if (decomposes) {
    const Tensor k = sizes(weight).unsqueeze(1);
    factors = k * factors;
    if (drawn.defined()) {
      parts.push_back(dropped);
      columns.push_back(((k - 1) * weight).to(type));
    } else {
      columns.front() = (k * weight).to(type);
    }
  }
  parts.push_back(of_factors.to(states.scalar_type()));
  columns.push_back(factors.to(type));
  return {at::cat(parts, -1), at::cat(columns, 1)};
}

void TableAdapter::visit(const ParameterFunction& function) {
  if (of_embedding) {
    function({"lora_embedding_A", a, -1, 1});
    function({"lora_embedding_B", b, 0, -1});
  } else {
    function({"lora_A.weight", a, -1, 1});
    function({"lora_B.weight", b, 0, -1});
  }
  function({"lora_magnitude_vector", magnitudes, 0, -1});
  const int columns = 1;
  function(
      {"token_adapter.trainable_tokens_delta",
       rows,
       of_embedding ? columns : -1,
       of_embedding ? -1 : columns});
}

}  // namespace lockstep::nn
