// Norms, RoPE, embedding and attention compared with float64 references.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/activations.h"
#include "ops/attention.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/vector.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/expect_close.h"
#include "ops/norms.h"
#include "ops/rope.h"
#include "ops/split_heads.h"
#include "ops/testing.h"
#include "ops/token_loss.h"

namespace lockstep::ops {
namespace ops_test {

/// Results of every operation with a custom loop, in both types.
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
    add([](const auto& in) { return gelu_tanh(in[0]); }, {random({3, 37})});
    add([](const auto& in) { return swiglu(in[0], in[1]); }, {random({3, 37}), random({3, 37}, 2)});
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

TEST(Activations, GeluAndSwigluAndTheirGradients) {
  const MatrixUnit best = find_matrix_unit();
  for (const MatrixUnit unit : {MatrixUnit::kNone, best}) {
    matrix_unit() = unit;
    for (const int64_t count : {1, 15, 16, 40000}) {
      const Tensor x = random({count}) * 4, up = random({count}, 2);
      const auto what = fmt::format("unit {}, {}", static_cast<int>(unit), count);
      expect_close(
          [](const auto& in) { return gelu_tanh(in[0]); },
          [](const auto& in) { return at::gelu(in[0], "tanh"); },
          {x},
          "gelu " + what);
      expect_close(
          [](const auto& in) { return swiglu(in[0], in[1]); },
          [](const auto& in) { return at::silu(in[0]) * in[1]; },
          {x, up},
          "swiglu " + what);
    }
  }
  matrix_unit() = best;
}

TEST(Activations, StayFiniteFarOut) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor x = leaf(at::tensor({-1e4F, -50.0F, 0.0F, 50.0F, 1e4F}), type);
    const Tensor y = gelu_tanh(x) + swiglu(x, at::ones_like(x));
    y.sum().backward();
    const Tensor wanted = at::tensor({0.0F, 0.0F, 0.0F, 100.0F, 2e4F}).to(type);
    const Tensor slopes = at::tensor({0.0F, 0.0F, 1.0F, 2.0F, 2.0F}).to(type);
    EXPECT_TRUE(at::allclose(y, wanted, 1e-6, 1e-15));
    EXPECT_TRUE(at::allclose(x.grad(), slopes, 1e-6, 1e-15));
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
  // A different order of float32 sums may change the last bit; almost all values are equal.
  EXPECT_GT(rms_norm(x, weight, 1e-6).eq(wanted).to(at::kFloat).mean().item<double>(), 0.99);
}

TEST(Norms, WithAResidualAndTheGradientsOfBoth) {
  for (const auto& [rows, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {70, 37}, {129, 16}, {5, 520}}) {
    const auto rms = [](const std::vector<Tensor>& in) {
      const auto [sum, norm] = add_rms_norm(in[0], in[1], in[2], 1e-6);
      return sum * 0.5 + norm;
    };
    const auto layer = [](const std::vector<Tensor>& in) {
      const auto [sum, norm] = add_layer_norm(in[0], in[1], in[2], in[3], 1e-5);
      return sum * 0.5 + norm;
    };
    const auto beside = [](const std::vector<Tensor>& in) {
      const auto [x, norm] = rms_norm_beside(in[0], in[1], 1e-6);
      const auto [y, other] = layer_norm_beside(x, in[1], in[2], 1e-5);
      return y * 0.5 + norm * other;
    };
    const std::vector<Tensor> inputs{
        random({rows, size}) * 2, random({rows, size}, 4), random({size}, 2) + 1};
    auto with_bias = inputs;
    with_bias.push_back(random({size}, 3));
    expect_close(rms, rms, inputs, fmt::format("rms {} x {}", rows, size));
    expect_close(
        beside,
        beside,
        {inputs[0], inputs[2], with_bias[3]},
        fmt::format("beside {} x {}", rows, size));
    expect_close(layer, layer, with_bias, fmt::format("layer {} x {}", rows, size));
  }
}

TEST(Norms, WithAResidualOfWhichOnePartIsUsed) {
  const Tensor weight = random({9}, 2);
  const auto gradients = [&](bool uses_sum) {
    const Tensor x = leaf(random({4, 9}), at::kFloat),
                 residual = leaf(random({4, 9}, 3), at::kFloat);
    const auto both = add_rms_norm(x, residual, weight, 1e-6);
    (uses_sum ? both.sum : both.norm).square().sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), residual.grad()));
    return x.grad();
  };
  const Tensor sum = leaf(random({4, 9}) + random({4, 9}, 3), at::kFloat);
  EXPECT_LT(error(gradients(true), 2 * sum.detach()), 1e-6);
  rms_norm(sum, weight, 1e-6).square().sum().backward();
  EXPECT_LT(error(gradients(false), sum.grad()), 1e-6);
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

TEST(Rope, WithinTheSplitOfAPackedProjection) {
  for (const auto& [heads, kv_heads, size, half, by_row] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, bool>>{
           {3, 3, 8, 4, false}, {4, 2, 10, 3, true}, {5, 1, 64, 32, false}}) {
    const Tensor angle = by_row ? random({2, 7, half}, 7) : random({7, half}, 7);
    // All three tensors contribute to the result, each with its own factor.
    const auto joined = [](const std::array<Tensor, 3>& parts) {
      return at::cat({parts[0], parts[1] * 0.5, parts[2] * 2}, 1);
    };
    const auto fused = [&, head_count = kv_heads, dim = size](const std::vector<Tensor>& in) {
      return joined(split_rotated_heads(in[0], dim, head_count, angle.cos(), angle.sin()));
    };
    const auto plain = [&, count = heads, kv = kv_heads, dim = size](
                           const std::vector<Tensor>& in) {
      const Tensor all = in[0].unflatten(-1, {-1, dim});
      const auto part = [&](int64_t first, int64_t number) { return all.narrow(2, first, number); };
      const Tensor cos = angle.cos(), sin = angle.sin();
      return joined(
          {rotate_plainly(part(0, count), cos, sin).transpose(1, 2),
           rotate_plainly(part(count, kv), cos, sin).transpose(1, 2),
           part(count + kv, kv).transpose(1, 2)});
    };
    expect_close(
        fused,
        plain,
        {random({2, 7, (heads + 2 * kv_heads) * size})},
        fmt::format("{} and {} heads of {}", heads, kv_heads, size));
  }
  EXPECT_THROW(
      split_rotated_heads(at::zeros({1, 2, 12}), 4, 2, at::zeros({2, 2}), at::zeros({2, 2})),
      Error);
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

TEST(Embedding, RowsAreAddedToTheDenseGradientOfATiedWeight) {
  const Tensor ids = at::remainder(at::arange(600) * 7919, 29).view({2, 300});
  const auto with = [&](EmbeddingGradient form) {
    return [&, form](const std::vector<Tensor>& in) {
      return at::linear(ops::embedding(in[0], ids, 3, form), in[0]);
    };
  };
  expect_close(
      with(EmbeddingGradient::kRows),
      [&](const auto& in) { return at::linear(at::embedding(in[0], ids, 3), in[0]); },
      {random({31, 21}) * 0.3},
      "tied");
  const Tensor weight = leaf(random({31, 21}), at::kFloat);
  ops::embedding(weight, ids, 3, EmbeddingGradient::kRows).sum().backward();
  const Tensor whole = leaf(weight, at::kFloat);
  ops::embedding(whole, ids, 3).sum().backward();
  EXPECT_TRUE(weight.grad().is_sparse());
  EXPECT_TRUE(at::equal(weight.grad().to_dense(), whole.grad()));
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
    seen = seen * dropout_by_tensors(
                      at::ones(seen.sizes()),
                      options.dropout,
                      options.dropout_keys,
                      probabilities_region(0, 0, 0, seen.size(1)))
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
    // In bfloat16, probabilities are rounded once more if dropout is used. The float32 case shows
    // that the masks equal those of the reference.
    const double bfloat16_limit = c.dropout > 0 ? 2e-2 : limit_of(at::kBFloat16);
    expect_close(run, exact, inputs, what, bfloat16_limit);
    expect_close(plain, exact, inputs, "tiled " + what, bfloat16_limit);
  }
}

TEST(Attention, EveryMatrixUnitOnWholeSequences) {
  struct Case {
    int64_t heads, kv_heads, length, size, window;
  };
  const MatrixUnit best = find_matrix_unit();
  for (const MatrixUnit unit : {MatrixUnit::kAvx512, MatrixUnit::kBfloat16, MatrixUnit::kAmx}) {
    if (unit > best) {
      continue;
    }
    matrix_unit() = unit;
    for (const Case& c : std::vector<Case>{
             {2, 2, 2, 1, 0},
             {2, 2, 63, 64, 0},
             {4, 2, 64, 40, 0},
             {3, 1, 65, 96, 0},
             {2, 1, 200, 24, 0},
             {2, 2, 200, 32, 70},
             {1, 1, 130, 24, 1},
             {6, 2, 129, 128, 500}}) {
      AttentionOptions options;
      options.scale = 1 / std::sqrt(static_cast<double>(c.size));
      options.window = c.window;
      // Heads between positions, as in packed projections.
      const auto run = [&](const std::vector<Tensor>& in) {
        return attention(
            in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), options);
      };
      const auto exact = [&](const std::vector<Tensor>& in) {
        return attend_plainly(
            {in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2)}, options);
      };
      expect_close(
          run,
          exact,
          {random({2, c.length, c.heads, c.size}),
           random({2, c.length, c.kv_heads, c.size}, 2),
           random({2, c.length, c.kv_heads, c.size}, 3)},
          fmt::format(
              "unit {}, {} heads, {} positions of {}",
              static_cast<int>(unit),
              c.heads,
              c.length,
              c.size));
    }
  }
  matrix_unit() = best;
}

TEST(SplitHeads, GradientsPackedOrNot) {
  AttentionOptions options;
  options.scale = 0.4;
  for (const double dropout : {0.0, 0.25}) {  // with dropout the gradients are separate tensors
    options.dropout = dropout;
    options.dropout_keys = at::tensor({4, 5}, at::kLong);
    const auto run = [&](const std::vector<Tensor>& in) {
      const auto heads = split_heads(in[0], 8);
      return attention(heads[0], heads[1], heads[2], options).transpose(1, 2).flatten(2);
    };
    const auto exact = [&](const std::vector<Tensor>& in) {
      const auto heads = in[0].unflatten(-1, {3, -1, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
      return attend_plainly({heads[0], heads[1], heads[2]}, options).transpose(1, 2).flatten(2);
    };
    expect_close(run, exact, {random({2, 70, 3 * 3 * 8})}, fmt::format("dropout {}", dropout));
  }
  EXPECT_THROW(split_heads(random({2, 3, 25}), 8), Error);
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

}  // namespace ops_test
}  // namespace lockstep::ops
