// Attention over packed documents, in every implementation, compared with each document alone.
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/attention.h"
#include "ops/attention_rows.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/machine.h"
#include "ops/dropout.h"
#include "ops/expect_close.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace document_attention_test {

using Lengths = std::vector<std::vector<int64_t>>;  // lengths of the documents of each row

Tensor starts_of(const Lengths& rows) {
  std::vector<Tensor> starts;
  for (const auto& row : rows) {
    std::vector<int64_t> of_row;
    for (const int64_t length : row) {
      of_row.insert(of_row.end(), static_cast<size_t>(length), std::ssize(of_row));
    }
    starts.push_back(at::tensor(of_row, at::kLong));
  }
  return at::stack(starts);
}

/// Softmax attention of each document alone.
Tensor attend_each(
    const std::vector<Tensor>& in, const Lengths& rows, const AttentionOptions& options) {
  const int64_t groups = in[0].size(1) / in[1].size(1);
  const Tensor key = in[1].repeat_interleave(groups, 1), value = in[2].repeat_interleave(groups, 1);
  std::vector<Tensor> outs;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::vector<Tensor> of_row;
    int64_t begin = 0;
    for (const int64_t length : rows[row]) {
      const auto part = [&](const Tensor& x) {
        return x[static_cast<int64_t>(row)].narrow(1, begin, length);  // [H, L, D]
      };
      const Tensor at = at::arange(length);
      Tensor hidden = at > at.unsqueeze(1);
      if (options.window > 0) {
        hidden = hidden.logical_or(at <= at.unsqueeze(1) - options.window);
      }
      const Tensor scores = at::matmul(part(in[0]), part(key).transpose(1, 2)) * options.scale;
      of_row.push_back(
          at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), part(value)));
      begin += length;
    }
    outs.push_back(at::cat(of_row, 1));
  }
  return at::stack(outs);
}

struct Case {
  int64_t heads, kv_heads, size, window;
  Lengths rows;
};

std::vector<Case> cases() {
  return {
      {2, 2, 8, 0, {{1, 6}, {4, 3}}},
      {4, 2, 8, 0, {{7}, {1, 1, 1, 1, 1, 1, 1}}},
      {3, 1, 24, 4, {{2, 9}, {11}}},
      {4, 2, 40, 0, {{63, 65, 2}, {64, 66}}},
      {2, 1, 16, 50, {{1, 128, 71}, {60, 60, 80}}},
      {2, 2, 8, 0, {{130, 3, 150, 17}, {300}}},
  };
}

std::vector<Tensor> inputs_of(const Case& c) {
  const int64_t length = starts_of(c.rows).size(1);
  return {
      random({2, c.heads, length, c.size}),
      random({2, c.kv_heads, length, c.size}, 2),
      random({2, c.kv_heads, length, c.size}, 3)};
}

AttentionOptions options_of(const Case& c) {
  AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<double>(c.size));
  options.window = c.window;
  options.document_starts = starts_of(c.rows);
  return options;
}

std::string name_of(const Case& c) {
  return fmt::format("{} heads, window {}, documents {}", c.heads, c.window, c.rows.front().size());
}

using Form =
    Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions& options);

void expect_documents_apart(Form form, const std::string& what) {
  for (const Case& c : cases()) {
    const AttentionOptions options = options_of(c);
    expect_close(
        [&](const auto& in) { return form(in[0], in[1], in[2], options); },
        [&](const auto& in) { return attend_each(in, c.rows, options); },
        inputs_of(c),
        what + ", " + name_of(c));
  }
}

TEST(DocumentAttention, TheLoopsOfEveryMatrixUnit) {
  const MatrixUnit best = find_matrix_unit();
  for (const MatrixUnit unit :
       {MatrixUnit::kNone, MatrixUnit::kAvx512, MatrixUnit::kBfloat16, MatrixUnit::kAmx}) {
    if (unit <= best) {
      matrix_unit() = unit;
      expect_documents_apart(attention, fmt::format("unit {}", static_cast<int>(unit)));
    }
  }
  matrix_unit() = best;
}

TEST(DocumentAttention, TheTiledAndTheFusedForm) {
  expect_documents_apart(tiled_attention, "tiled");
  expect_documents_apart(fused_attention, "fused");
}

TEST(DocumentAttention, DropoutIsThatOfTheRow) {
  const Case c{3, 1, 8, 0, {{5, 8}, {12, 1}}};
  AttentionOptions options = options_of(c);
  options.dropout = 0.3;
  options.dropout_keys = at::tensor({5, 6}, at::kLong);
  const std::vector<Tensor> in = inputs_of(c);
  // With value 1 for one key and 0 for the others, the output shows which probabilities were
  // retained.
  const Tensor mask = dropout_by_tensors(
      at::ones({2, 3, 13, 13}), 0.3, options.dropout_keys, probabilities_region(0, 0, 0, 3));
  AttentionOptions whole = options;
  whole.dropout = 0;
  const Tensor ones = at::zeros_like(in[2]);
  ones.select(2, 6).fill_(1);
  const Tensor kept = attention(in[0], in[1], ones, options).select(3, 0);
  const Tensor all = attention(in[0], in[1], ones, whole).select(3, 0);
  EXPECT_LT(error(kept, all * mask.select(3, 6)), 1e-6);
  EXPECT_TRUE(all[0].narrow(1, 0, 6).eq(0).all().item<bool>());
  EXPECT_TRUE(all[0].narrow(1, 6, 7).gt(0).all().item<bool>());
}

TEST(DocumentAttention, StartsThatDoNotFitAreErrors) {
  const Tensor x = random({2, 2, 4, 4});
  AttentionOptions options;
  options.document_starts = at::zeros({2, 3}, at::kLong);
  EXPECT_THROW(attention(x, x, x, options), Error);
  options.document_starts = at::zeros({2, 4}, at::kInt);
  EXPECT_THROW(tiled_attention(x, x, x, options), Error);
  options.document_starts = at::zeros({2, 4}, at::kLong);
  EXPECT_THROW(attention(x.narrow(2, 0, 3), x, x, options), Error);
}

TEST(DocumentAttention, OffsetsAreWhereDocumentsLieInAllRows) {
  const auto [offsets, longest] = offsets_of_documents(starts_of({{2, 3, 1}, {6}, {1, 1, 4}}));
  EXPECT_TRUE(at::equal(offsets, at::tensor({0, 2, 5, 6, 12, 13, 14, 18}, at::kInt)));
  EXPECT_EQ(longest, 6);
}

}  // namespace document_attention_test
}  // namespace lockstep::ops
