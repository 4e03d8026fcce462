// Attention over documents with common prefixes, stored as trees, in every implementation, compared
// with each document alone. Also attention of a single query, as in generation.
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/attention.h"
#include "ops/cpu/machine.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace tree_attention_test {

/// A row of two trees: one with `stem` tokens followed by branches, and one with three tokens in
/// sequence.
struct Trees {
  int64_t stem;
  std::vector<int64_t> branches;
  int64_t length() const {
    int64_t sum = stem + 3;
    for (const int64_t branch : branches) {
      sum += branch;
    }
    return sum;
  }
};

std::vector<Trees> trees() {
  return {{5, {2, 4, 1}}, {1, {1, 1}}, {70, {3, 90, 20}}, {130, {64, 1, 63}}, {20, {5}}};
}

AttentionOptions options_of(const Trees& t, double scale) {
  const int64_t all = t.length(), whole = all - 3;
  std::vector<int64_t> start(static_cast<size_t>(whole), 0),
      until(static_cast<size_t>(t.stem), whole);
  int64_t end = t.stem;
  for (const int64_t branch : t.branches) {
    end += branch;
    until.insert(until.end(), static_cast<size_t>(branch), end);
  }
  start.insert(start.end(), 3, whole);
  until.insert(until.end(), 3, all);
  AttentionOptions options;
  options.scale = scale;
  options.document_starts = at::tensor(start, at::kLong).repeat({2, 1});
  options.seen_until = at::tensor(until, at::kLong).repeat({2, 1});
  return options;
}

/// Returns the tokens of each document, and the index of its first own token after the common
/// prefix.
std::vector<std::pair<std::vector<int64_t>, int64_t>> texts_of(const Trees& t) {
  std::vector<std::pair<std::vector<int64_t>, int64_t>> texts;
  std::vector<int64_t> stem;
  for (int64_t i = 0; i < t.stem; ++i) {
    stem.push_back(i);
  }
  texts.emplace_back(stem, 0);
  int64_t next = t.stem;
  for (const int64_t branch : t.branches) {
    texts.emplace_back(stem, t.stem);
    for (int64_t i = 0; i < branch; ++i) {
      texts.back().first.push_back(next++);
    }
  }
  texts.push_back({{next, next + 1, next + 2}, 0});
  return texts;
}

Tensor each_text(const std::vector<Tensor>& in, const Trees& t, double scale) {
  const int64_t groups = in[0].size(1) / in[1].size(1);
  const Tensor key = in[1].repeat_interleave(groups, 1), value = in[2].repeat_interleave(groups, 1);
  Tensor out = at::zeros_like(in[0]);
  for (const auto& [tokens, own] : texts_of(t)) {
    const Tensor at = at::tensor(tokens, at::kLong);
    const auto part = [&](const Tensor& x) { return x.index_select(2, at); };
    const Tensor hidden = at::ones({at.numel(), at.numel()}, at::kBool).triu(1);
    const Tensor scores = at::matmul(part(in[0]), part(key).transpose(2, 3)) * scale;
    const Tensor made =
        at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), part(value));
    const int64_t count = at.numel() - own;
    out.index_copy_(2, at.narrow(0, own, count), made.narrow(2, own, count));
  }
  return out;
}

void expect_texts_apart(at::ScalarType type, bool with_gradients, const std::string& what) {
  for (const Trees& t : trees()) {
    const std::vector<Tensor> in{
        random({2, 4, t.length(), 40}).to(at::kBFloat16),
        random({2, 2, t.length(), 40}, 2).to(at::kBFloat16),
        random({2, 2, t.length(), 40}, 3).to(at::kBFloat16)};
    const auto of_type = [&](at::ScalarType as) {
      std::vector<Tensor> leaves;
      for (const Tensor& x : in) {
        leaves.push_back(x.to(as).set_requires_grad(with_gradients));
      }
      return leaves;
    };
    const double limit = type == at::kFloat ? 3e-6 : 1e-2;
    const std::vector<Tensor> leaves = of_type(type);
    const Tensor got = attention(leaves[0], leaves[1], leaves[2], options_of(t, 0.3));
    const std::vector<Tensor> exact = of_type(at::kDouble);
    const Tensor wanted = each_text(exact, t, 0.3);
    EXPECT_LT(error(got, wanted), limit) << what << ", a stem of " << t.stem;
    if (with_gradients) {
      got.sum().backward();
      wanted.sum().backward();
      EXPECT_LT(error(leaves[1].grad(), exact[1].grad()), limit) << what << ", its gradient";
    }
  }
}

TEST(TreeAttention, OnEveryMatrixUnit) {
  const MatrixUnit best = find_matrix_unit();
  const at::NoGradGuard no_gradient;
  for (const MatrixUnit unit :
       {MatrixUnit::kNone, MatrixUnit::kAvx512, MatrixUnit::kBfloat16, MatrixUnit::kAmx}) {
    if (unit <= best) {
      matrix_unit() = unit;
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        expect_texts_apart(
            type, false, fmt::format("unit {}, {}", static_cast<int>(unit), c10::toString(type)));
      }
    }
  }
  matrix_unit() = best;
}

TEST(TreeAttention, WithGradients) {
  expect_texts_apart(at::kFloat, true, "with gradients");
}

TEST(TreeAttention, WhatItDoesNotTakeIsAnError) {
  const Trees t{5, {2, 4}};
  const Tensor x = random({2, 2, t.length(), 8});
  const AttentionOptions good = options_of(t, 1);
  const auto expect_error = [&](auto change) {
    AttentionOptions options = good;
    change(options);
    EXPECT_THROW(attention(x, x, x, options), Error);
  };
  EXPECT_NO_THROW(attention(x, x, x, good));
  expect_error([](AttentionOptions& o) { o.document_starts = Tensor(); });
  expect_error([](AttentionOptions& o) { o.window = 3; });
  expect_error([](AttentionOptions& o) { o.cap = 2; });
  expect_error([](AttentionOptions& o) { o.sinks = at::zeros({2}); });
  expect_error([](AttentionOptions& o) { o.seen_until = o.seen_until.narrow(1, 0, 2); });
}

TEST(OneQuery, SeesTheKeysOfItsHeadWhereTheyLie) {
  const at::NoGradGuard no_gradient;
  for (const int64_t size : {10, 16, 72}) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      // Slices of a cache that has room for more tokens.
      const auto cached = [&](uint64_t seed) {
        return random({5, 2, 60, size}, seed).to(type).narrow(0, 0, 3).narrow(2, 3, 35);
      };
      const Tensor query = random({3, 6, 1, size}).to(type), key = cached(2), value = cached(3);
      for (const int64_t window : {0, 1, 4, 16, 50}) {
        AttentionOptions options;
        options.scale = 0.4;
        options.window = window;
        EXPECT_LT(
            error(
                attention(query, key, value, options), tiled_attention(query, key, value, options)),
            type == at::kBFloat16 ? 1e-2 : 3e-6)
            << window << " of " << size;
      }
    }
  }
}

}  // namespace tree_attention_test
}  // namespace lockstep::ops
