// Norms, rope, embedding, attention and the token loss against plain formulas in float64.
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/norms.h"
#include "ops/rope.h"
#include "ops/testing.h"
#include "ops/token_loss.h"
#include "ops/vector.h"

namespace lockstep::ops {
namespace {

double limit_of(at::ScalarType type) {
  return type == at::kFloat ? 3e-6 : 1e-2;
}

/// The value and the gradients of `function` at `inputs`, for a fixed gradient of the result.
std::vector<Tensor> value_and_gradients(
    const std::function<Tensor(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& inputs,
    at::ScalarType type) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(leaf(input, type));
  }
  const Tensor y = function(leaves);
  // The values as the type holds them, so that all types see the same gradient.
  y.backward(random(y.sizes(), 99).to(at::kBFloat16).to(y.scalar_type()));
  std::vector<Tensor> results = {y.detach()};
  for (const Tensor& input : leaves) {
    results.push_back(input.grad());
  }
  return results;
}

void expect_close(
    const std::function<Tensor(const std::vector<Tensor>&)>& function,
    const std::function<Tensor(const std::vector<Tensor>&)>& exact,
    std::vector<Tensor> inputs,
    const std::string& what) {
  for (Tensor& input : inputs) {
    input = input.to(at::kBFloat16).to(at::kFloat);
  }
  const auto wanted = value_and_gradients(exact, inputs, at::kDouble);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto got = value_and_gradients(function, inputs, type);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(error(got[i], wanted[i]), limit_of(type))
          << what << " " << c10::toString(type) << " result " << i;
    }
  }
}

/// One number of every operation with a loop of its own, in both types.
std::vector<Tensor> all_loops() {
  std::vector<Tensor> results;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto add = [&](const std::function<Tensor(const std::vector<Tensor>&)>& function,
                         const std::vector<Tensor>& inputs) {
      for (const Tensor& result : value_and_gradients(function, inputs, type)) {
        results.push_back(result);
      }
    };
    const Tensor keys = at::tensor({4, 5}, at::kLong), angle = random({45, 9}, 7);
    const Tensor ids = at::remainder(at::arange(45), 11);
    AttentionOptions options;
    options.window = 30;
    options.dropout = 0.2;
    options.dropout_keys = keys;
    add([](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
        {random({45, 37}), random({37}, 2), random({37}, 3)});
    add([](const auto& in) { return rms_norm(in[0], in[1], 1e-6); },
        {random({45, 37}), random({37}, 2)});
    add([&](const auto& in) { return rotate(in[0], angle.cos(), angle.sin()); },
        {random({2, 45, 3, 21})});
    add([&](const auto& in) { return dropout(in[0], 0.3, keys); }, {random({2, 333})});
    add([&](const auto& in) { return ops::embedding(in[0], ids); }, {random({12, 37})});
    add([&](const auto& in) { return tiled_attention(in[0], in[1], in[2], options); },
        {random({2, 4, 45, 8}), random({2, 2, 45, 8}, 2), random({2, 2, 45, 8}, 3)});
    add([&](const auto& in) { return token_loss(in[0], in[1], ids); },
        {random({45, 8}), random({77, 8}, 2)});
  }
  return results;
}

TEST(Vector, EveryVersionOfTheLoopsAgrees) {
  const vector::Level best = vector::level();
  const auto wanted = all_loops();
  for (const auto level : {vector::Level::kPlain, vector::Level::kAvx2}) {
    if (level >= best) {
      continue;
    }
    vector::level() = level;
    const auto got = all_loops();
    vector::level() = best;
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(error(got[i], wanted[i]), limit_of(got[i].scalar_type())) << i;
    }
  }
}

TEST(Norms, LayerNormAndItsGradients) {
  for (const auto& [rows, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {3, 5}, {200, 16}, {70, 37}, {9, 768}}) {
    const auto run = [](const std::vector<Tensor>& in) {
      return layer_norm(in[0], in[1], in[2], 1e-5);
    };
    expect_close(
        run,
        run,
        {random({rows, size}) * 3 + 1, random({size}, 2) + 1, random({size}, 3)},
        fmt::format("{} x {}", rows, size));
  }
}

TEST(Norms, Bfloat16BiasGradientIsSummedInFloat32) {
  const Tensor x = leaf(random({1, 4096, 32}), at::kBFloat16);
  const Tensor weight = leaf(at::ones({32}), at::kBFloat16),
               bias = leaf(at::zeros({32}), at::kBFloat16);
  const Tensor gradient = (random({1, 4096, 32}, 5) + 0.1).to(at::kBFloat16);
  layer_norm(x, weight, bias, 1e-5).backward(gradient);
  EXPECT_LT(error(bias.grad(), gradient.to(at::kDouble).sum(at::IntArrayRef{0, 1})), 4e-3);
}

TEST(Norms, RmsNormAndItsGradients) {
  for (const auto& [rows, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {65, 33}, {200, 16}, {5, 512}}) {
    const auto run = [](const std::vector<Tensor>& in) { return rms_norm(in[0], in[1], 1e-6); };
    expect_close(
        run,
        run,
        {random({rows, size}) * 2, random({size}, 2) + 1},
        fmt::format("{} x {}", rows, size));
  }
}

TEST(Norms, RmsNormRoundsWhereHuggingFaceDoes) {
  const Tensor x = random({7, 40}).to(at::kBFloat16), weight = random({40}, 2).to(at::kBFloat16);
  const Tensor high = x.to(at::kFloat);
  const Tensor normal = high * at::rsqrt(high.square().mean(-1, true) + 1e-6);
  const Tensor wanted = weight * normal.to(at::kBFloat16);
  // One unit in the last place may differ where the float32 sums round otherwise; almost all are
  // equal.
  EXPECT_GT(rms_norm(x, weight, 1e-6).eq(wanted).to(at::kFloat).mean().item<double>(), 0.99);
}

Tensor rotate_plainly(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t half = cos.size(-1);
  const Tensor c = at::cat({cos, cos}, -1).unsqueeze(-2), s = at::cat({sin, sin}, -1).unsqueeze(-2);
  const Tensor turned = x.narrow(-1, 0, 2 * half);
  const Tensor swapped = at::cat({-turned.narrow(-1, half, half), turned.narrow(-1, 0, half)}, -1);
  return at::cat({turned * c + swapped * s, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

TEST(Rope, RotatesHalvesWholePartialAndByRow) {
  for (const auto& [size, half, by_row] : std::vector<std::tuple<int64_t, int64_t, bool>>{
           {8, 4, false}, {64, 32, true}, {10, 3, false}, {6, 1, true}}) {
    const Tensor angle = by_row ? random({2, 5, half}, 7) : random({5, half}, 7);
    const auto run = [&](const std::vector<Tensor>& in) {
      return rotate(in[0], angle.cos(), angle.sin());
    };
    const auto exact = [&](const std::vector<Tensor>& in) {
      return rotate_plainly(in[0], angle.cos(), angle.sin());
    };
    expect_close(run, exact, {random({2, 5, 3, size})}, fmt::format("{} {}", size, half));
  }
  EXPECT_THROW(rotate(random({2, 5, 3, 8}), random({4, 4}), random({4, 4})), Error);
  EXPECT_THROW(rotate(random({2, 5, 3, 8}), random({5, 5}), random({5, 5})), Error);
}

TEST(Rope, TakesAViewOfPackedHeads) {
  const Tensor packed = random({2, 5, 3, 3, 8}), angle = random({5, 4}, 7);
  const Tensor view = packed.select(2, 1);  // [2, 5, 3, 8], not contiguous
  EXPECT_TRUE(at::equal(
      rotate(view, angle.cos(), angle.sin()), rotate(view.contiguous(), angle.cos(), angle.sin())));
}

TEST(Embedding, SumsRepeatedTokensInFloat32) {
  const Tensor ids = at::remainder(at::arange(600), 7).view({2, 300});
  const auto run = [&](const std::vector<Tensor>& in) { return ops::embedding(in[0], ids, 3); };
  const auto exact = [&](const std::vector<Tensor>& in) { return at::embedding(in[0], ids, 3); };
  expect_close(run, exact, {random({11, 21})}, "embedding");
}

TEST(Embedding, NamesAnIdThatTheVocabularyLacks) {
  for (const int64_t id : {-1, 11}) {
    try {
      ops::embedding(random({11, 2}), at::full({1, 1}, id, at::kLong));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(error.message().find(fmt::format("token id {}", id)), std::string::npos);
    }
  }
}

Tensor attend_plainly(const std::vector<Tensor>& in, const AttentionOptions& options) {
  const int64_t groups = in[0].size(1) / in[1].size(1);
  const Tensor key = in[1].repeat_interleave(groups, 1), value = in[2].repeat_interleave(groups, 1);
  const Tensor hidden =
      visible_keys(in[0].size(2), key.size(2), options.window, at::kCPU).logical_not();
  const Tensor scores = at::matmul(in[0], key.transpose(2, 3)) * options.scale;
  Tensor seen =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  if (options.dropout > 0) {
    seen = seen * dropout_by_tensors(at::ones(seen.sizes()), options.dropout, options.dropout_keys)
                      .to(seen.scalar_type());
  }
  return at::matmul(seen, value);
}

TEST(Attention, CausalWindowedGroupedWithDropoutAndPast) {
  struct Case {
    int64_t heads, kv_heads, queries, keys, window;
    double dropout;
  };
  for (const Case& c : std::vector<Case>{
           {4, 4, 7, 7, 0, 0},
           {4, 2, 7, 7, 0, 0},
           {3, 1, 9, 9, 4, 0},
           {4, 2, 1, 9, 0, 0},
           {4, 2, 1, 9, 3, 0},
           {2, 2, 3, 9, 0, 0},
           {2, 1, 3, 9, 4, 0},
           {4, 4, 7, 7, 0, 0.3},
           {4, 2, 7, 7, 3, 0.3},
           {4, 1, 5, 5, 99, 0.1},
           {2, 2, 1, 1, 1, 0},
           {2, 1, 300, 300, 0, 0.2},
           {2, 2, 200, 290, 60, 0.2},
           {1, 1, 130, 130, 1, 0}}) {
    AttentionOptions options;
    options.scale = 0.31;
    options.window = c.window;
    options.dropout = c.dropout;
    options.dropout_keys = at::tensor({5, 6, 7}, at::kLong);
    const auto run = [&](const std::vector<Tensor>& in) {
      return attention(in[0], in[1], in[2], options);
    };
    const auto plain = [&](const std::vector<Tensor>& in) {
      return tiled_attention(in[0], in[1], in[2], options);
    };
    const auto exact = [&](const std::vector<Tensor>& in) { return attend_plainly(in, options); };
    const std::vector<Tensor> inputs = {
        random({3, c.heads, c.queries, 8}),
        random({3, c.kv_heads, c.keys, 8}, 2),
        random({3, c.kv_heads, c.keys, 8}, 3)};
    const auto what = fmt::format(
        "{} {} {} {} {} {}", c.heads, c.kv_heads, c.queries, c.keys, c.window, c.dropout);
    expect_close(run, exact, inputs, what);
    expect_close(plain, exact, inputs, "tiled " + what);
  }
}

TEST(Attention, DropoutOfAPartOfTheHeadsIsThatOfTheWhole) {
  const Tensor q = random({2, 4, 6, 8}), k = random({2, 2, 6, 8}, 2), v = random({2, 2, 6, 8}, 3);
  AttentionOptions options;
  options.scale = 0.3;
  options.dropout = 0.5;
  options.dropout_keys = at::tensor({5, 6}, at::kLong);
  const Tensor whole = attention(q, k, v, options);
  options.first_head = 2;
  options.total_heads = 4;
  const Tensor part = attention(q.narrow(1, 2, 2), k.narrow(1, 1, 1), v.narrow(1, 1, 1), options);
  EXPECT_LT(error(part, whole.narrow(1, 2, 2)), 1e-6);
}

TEST(Attention, UpcastScoresAreBetterInBfloat16) {
  const Tensor q = random({1, 2, 32, 64}) * 6, k = random({1, 2, 32, 64}, 2),
               v = random({1, 2, 32, 64}, 3);
  AttentionOptions options;
  options.scale = 0.125;
  options.upcast = true;
  const auto as = [](const Tensor& x) { return x.to(at::kBFloat16); };
  const Tensor wanted = attend_plainly(
      {as(q).to(at::kDouble), as(k).to(at::kDouble), as(v).to(at::kDouble)}, options);
  EXPECT_LT(error(attention(as(q), as(k), as(v), options), wanted), 6e-3);
}

TEST(Attention, ShapesThatDoNotFitAreErrors) {
  const AttentionOptions options;
  EXPECT_THROW(
      attention(random({1, 3, 2, 4}), random({1, 2, 2, 4}), random({1, 2, 2, 4}), options), Error);
  EXPECT_THROW(
      attention(random({1, 2, 3, 4}), random({1, 2, 2, 4}), random({1, 2, 2, 4}), options), Error);
}

TEST(TokenLoss, LossAndBothGradients) {
  for (const auto& [rows, size, vocabulary] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 3, 2}, {5, 16, 1}, {33, 20, 101}, {300, 8, 1000}, {64, 12, 257}}) {
    Tensor targets = at::remainder(at::arange(rows) * 7919, vocabulary);
    if (rows > 2) {
      targets[1] = kIgnoredTarget;
      targets[rows - 1] = kIgnoredTarget;
    }
    const auto run = [&](const std::vector<Tensor>& in) {
      return token_loss(in[0], in[1], targets);
    };
    const auto exact = [&](const std::vector<Tensor>& in) {
      return token_loss_reference(in[0], in[1], targets);
    };
    expect_close(
        run,
        exact,
        {random({rows, size}), random({vocabulary, size}, 2)},
        fmt::format("{} {} {}", rows, size, vocabulary));
  }
}

TEST(TokenLoss, ManyRunsGiveTheResultOfOne) {
  const Tensor targets = at::remainder(at::arange(300) * 104729, 70);
  targets.narrow(0, 20, 90).fill_(kIgnoredTarget);
  for (const int64_t rows : {1, 64, 209, 210}) {
    const auto run = [&](const std::vector<Tensor>& in) {
      return token_loss(in[0], in[1], targets, rows);
    };
    const auto exact = [&](const std::vector<Tensor>& in) {
      return token_loss_reference(in[0], in[1], targets);
    };
    expect_close(run, exact, {random({300, 9}), random({70, 9}, 2)}, fmt::format("{} rows", rows));
  }
}

TEST(TokenLoss, LargeLogitsStayFinite) {
  const Tensor hidden = leaf(at::full({2, 1}, 100), at::kFloat);
  const Tensor weight = at::tensor({10.0F, -10.0F, 9.0F}).unsqueeze(1);
  const Tensor loss = token_loss(hidden, weight, at::tensor({0, 1}, at::kLong));
  EXPECT_NEAR(loss.item<double>(), 2000, 1e-3);
  loss.backward();
  EXPECT_NEAR(hidden.grad()[1].item<double>(), 20, 1e-4);
}

TEST(TokenLoss, NothingCountsAndNotANumberShows) {
  const Tensor hidden = leaf(random({4, 3}), at::kFloat),
               weight = leaf(random({5, 3}, 2), at::kFloat);
  const Tensor none = at::full({4}, kIgnoredTarget, at::kLong);
  const Tensor loss = token_loss(hidden, weight, none);
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(hidden.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(weight.grad().abs().max().item<double>(), 0);
  Tensor broken = random({4, 20});
  broken[2][1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(
      token_loss(broken, random({40, 20}, 2), at::zeros({4}, at::kLong)).item<double>()));
}

TEST(TokenLoss, WithoutAGradientAndFrozen) {
  const Tensor hidden = random({6, 3}), weight = random({5, 3}, 2), targets = at::arange(6) % 5;
  const Tensor wanted = token_loss_reference(hidden, weight, targets);
  EXPECT_LT(error(token_loss(hidden, weight, targets), wanted), 1e-6);
  const Tensor learned = leaf(hidden, at::kFloat);
  token_loss(learned, weight, targets).backward();
  const Tensor reference = leaf(hidden, at::kFloat);
  token_loss_reference(reference, weight, targets).backward();
  EXPECT_LT(error(learned.grad(), reference.grad()), 1e-6);
}

TEST(TokenLoss, ALabelOutOfBoundsIsNamed) {
  for (const int64_t label : {-1, 5, -101}) {
    try {
      token_loss(random({1, 3}), random({5, 3}), at::full({1}, label, at::kLong));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(error.message().find(fmt::format("label {}", label)), std::string::npos);
    }
  }
}

TEST(TokenLoss, Statistics) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor hidden = random({50, 6}).to(type), weight = random({37, 6}, 2).to(type);
    Tensor targets = at::linear(hidden, weight).argmax(1);
    targets.narrow(0, 0, 20).fill_(3);
    targets.narrow(0, 40, 10).fill_(kIgnoredTarget);
    const Tensor got = token_statistics(hidden, weight, targets);
    EXPECT_LT(error(got[0], token_loss_reference(hidden, weight, targets)), 1e-5);
    EXPECT_EQ(got[1].item<double>(), 40);
    const double right = at::linear(hidden, weight).argmax(1).eq(targets).sum().item<double>();
    EXPECT_EQ(got[2].item<double>(), right);
  }
}

}  // namespace
}  // namespace lockstep::ops
