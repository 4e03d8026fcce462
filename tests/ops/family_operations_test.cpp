// Operations of particular model families: norms that round once, capped scores, attention sinks,
// rotary pairs of neighbors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "ops/attention.h"
#include "ops/expect_close.h"
#include "ops/norms.h"
#include "ops/rope.h"

namespace lockstep::ops {
namespace family_operations_test {

using Inputs = std::vector<at::Tensor>;

at::Tensor norm_plainly(const Inputs& in, double offset) {
  return in[0] * at::rsqrt(in[0].square().mean(-1, true) + 1e-6) * (in[1] + offset);
}

TEST(RmsForms, MultiplyInFloat32AndRoundOnce) {
  for (const RmsForm form : {RmsForm::kExact, RmsForm::kAroundOne}) {
    const double offset = form == RmsForm::kAroundOne ? 1 : 0;
    for (const auto& [rows, size] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {65, 33}, {200, 16}, {5, 520}}) {
      const Inputs inputs{random({rows, size}) * 2, random({size}, 2)};
      expect_close(
          [&](const Inputs& in) { return rms_norm(in[0], in[1], 1e-6, form); },
          [&](const Inputs& in) { return norm_plainly(in, offset); },
          inputs,
          fmt::format("offset {}, {} x {}", offset, rows, size));
      Inputs both = inputs;
      both.push_back(random({rows, size}, 4));
      expect_close(
          [&](const Inputs& in) {
            const auto [sum, norm] = add_rms_norm(in[0], in[2], in[1], 1e-6, form);
            return sum * 0.5 + norm;
          },
          [&](const Inputs& in) {
            const at::Tensor sum = in[0] + in[2];
            return sum * 0.5 + norm_plainly({sum, in[1]}, offset);
          },
          both,
          fmt::format("sum, offset {}, {} x {}", offset, rows, size));
    }
  }
}

TEST(RmsForms, RoundWhereHuggingFaceDoes) {
  const at::Tensor x = random({7, 40}).to(at::kBFloat16), w = random({40}, 2).to(at::kBFloat16);
  const at::Tensor high = x.to(at::kFloat);
  const at::Tensor normal = high * at::rsqrt(high.square().mean(-1, true) + 1e-6);
  const auto share_of_equal = [&](RmsForm form, const at::Tensor& factor) {
    const at::Tensor wanted = (normal * factor).to(at::kBFloat16);
    return rms_norm(x, w, 1e-6, form).eq(wanted).to(at::kFloat).mean().item<double>();
  };
  EXPECT_GT(share_of_equal(RmsForm::kAroundOne, w.to(at::kFloat) + 1), 0.99);
  EXPECT_GT(share_of_equal(RmsForm::kExact, w.to(at::kFloat)), 0.99);
}

TEST(Rope, NeighboursTurnTogether) {
  const auto exact = [](const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    const int64_t turned = 2 * cos.size(-1);
    const at::Tensor pairs = x.narrow(-1, 0, turned).unflatten(-1, {-1, 2});
    const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    const at::Tensor c = cos.unsqueeze(-2), s = sin.unsqueeze(-2);
    return at::cat(
        {at::stack({a * c - b * s, b * c + a * s}, -1).flatten(-2),
         x.narrow(-1, turned, x.size(-1) - turned)},
        -1);
  };
  for (const auto& [size, half, by_row] : std::vector<std::tuple<int64_t, int64_t, bool>>{
           {8, 4, false}, {64, 16, true}, {10, 3, false}, {6, 1, true}}) {
    const at::Tensor angle = by_row ? random({2, 5, half}, 7) : random({5, half}, 7);
    expect_close(
        [&](const Inputs& in) {
          return rotate(in[0], angle.cos(), angle.sin(), RotaryPairs::kNeighbours);
        },
        [&](const Inputs& in) { return exact(in[0], angle.cos(), angle.sin()); },
        {random({2, 5, 3, size})},
        fmt::format("{} {}", size, half));
  }
}

at::Tensor attend_with_cap(const Inputs& in, const AttentionOptions& options) {
  const int64_t groups = in[0].size(1) / in[1].size(1);
  const at::Tensor key = in[1].repeat_interleave(groups, 1);
  const at::Tensor value = in[2].repeat_interleave(groups, 1);
  const at::Tensor scores = at::matmul(in[0], key.transpose(2, 3)) * options.scale;
  const at::Tensor hidden =
      visible_keys(in[0].size(2), key.size(2), options.window, at::kCPU, options.document_starts)
          .logical_not();
  const at::Tensor capped = at::tanh(scores / options.cap) * options.cap;
  return at::matmul(at::softmax(capped.masked_fill(hidden, -INFINITY), -1), value);
}

TEST(CappedAttention, ValuesAndGradients) {
  struct Case {
    int64_t heads, kv_heads, queries, keys, window;
    double cap;
    bool documents = false;
  };
  for (const Case& c : std::vector<Case>{
           {4, 4, 7, 7, 0, 0.5},
           {4, 2, 9, 9, 4, 1},
           {3, 1, 130, 130, 33, 0.3},
           {2, 2, 3, 9, 0, 2},
           {2, 1, 1, 9, 4, 2},
           {4, 2, 6, 6, 0, 0.7, true},
           {2, 2, 65, 65, 0, 50}}) {
    AttentionOptions options;
    options.scale = 0.31;
    options.cap = c.cap;
    options.window = c.window;
    if (c.documents) {
      options.document_starts =
          at::tensor({0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 4, 4}, at::kLong).view({2, 6});
    }
    const Inputs inputs = {
        random({2, c.heads, c.queries, 8}) * 2,
        random({2, c.kv_heads, c.keys, 8}, 2) * 2,
        random({2, c.kv_heads, c.keys, 8}, 3)};
    expect_close(
        [&](const Inputs& in) { return attention(in[0], in[1], in[2], options); },
        [&](const Inputs& in) { return attend_with_cap(in, options); },
        inputs,
        fmt::format("{} heads, {} queries, window {}, cap {}", c.heads, c.queries, c.window, c.cap),
        4e-2);  // the scores are rounded before the cap
  }
}

/// Reference with an additional key whose score is the sink's and whose value is zero.
at::Tensor attend_with_sinks(const Inputs& in, const AttentionOptions& options) {
  const int64_t groups = in[0].size(1) / in[1].size(1);
  const at::Tensor key = in[1].repeat_interleave(groups, 1),
                   value = in[2].repeat_interleave(groups, 1);
  const at::Tensor scores = at::matmul(in[0], key.transpose(2, 3)) * options.scale;
  const at::Tensor hidden =
      visible_keys(in[0].size(2), key.size(2), options.window, at::kCPU, options.document_starts)
          .logical_not();
  const at::Tensor sinks = in[3].view({1, -1, 1, 1}).expand({in[0].size(0), -1, in[0].size(2), 1});
  const at::Tensor all =
      at::softmax(at::cat({scores.masked_fill(hidden, -INFINITY), sinks}, -1), -1);
  return at::matmul(all.narrow(-1, 0, key.size(2)), value);
}

TEST(AttentionSinks, ValuesAndGradients) {
  struct Case {
    int64_t heads, kv_heads, queries, keys, window;
    bool documents = false;
  };
  for (const Case& c : std::vector<Case>{
           {4, 4, 7, 7, 0},
           {4, 2, 9, 9, 4},
           {3, 1, 130, 130, 33},
           {6, 2, 65, 65, 0},
           {2, 2, 3, 9, 0},
           {4, 2, 1, 9, 4},
           {4, 2, 6, 6, 0, true}}) {
    AttentionOptions options;
    options.scale = 0.31;
    options.window = c.window;
    if (c.documents) {
      options.document_starts =
          at::tensor({0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 4, 4}, at::kLong).view({2, 6});
    }
    const Inputs inputs = {
        random({2, c.heads, c.queries, 8}),
        random({2, c.kv_heads, c.keys, 8}, 2),
        random({2, c.kv_heads, c.keys, 8}, 3),
        random({c.heads}, 4) * 2};
    const auto what = fmt::format("{} heads, {} queries, window {}", c.heads, c.queries, c.window);
    const auto with_sinks = [&](const Inputs& in) {
      AttentionOptions of_these = options;
      of_these.sinks = in[3];
      return of_these;
    };
    const auto exact = [&](const Inputs& in) { return attend_with_sinks(in, options); };
    // A sink's gradient is a sum over rounded weights of all rows.
    constexpr double kLow = 2e-2;
    expect_close(
        [&](const Inputs& in) { return attention(in[0], in[1], in[2], with_sinks(in)); },
        exact,
        inputs,
        what,
        kLow);
    expect_close(
        [&](const Inputs& in) { return tiled_attention(in[0], in[1], in[2], with_sinks(in)); },
        exact,
        inputs,
        "tiled " + what,
        kLow);
  }
}

}  // namespace family_operations_test
}  // namespace lockstep::ops
