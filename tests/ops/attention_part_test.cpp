// Merged partial attention, compared with the whole in float64.
#include "ops/attention_part.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "ops/cpu/machine.h"
#include "ops/expect_close.h"
#include "ops/flash_part.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace attention_part_test {

struct Case {
  int64_t heads, kv_heads, before, length, size;  // `before`: number of keys that every query sees
};

/// Causal attention of the last positions, in[0], to all keys in[1] and values in[2].
Tensor attend_plainly(const std::vector<Tensor>& in, int64_t before, double scale) {
  const int64_t groups = in[0].size(1) / in[1].size(1), keys = in[1].size(2);
  const Tensor key = in[1].repeat_interleave(groups, 1), value = in[2].repeat_interleave(groups, 1);
  const Tensor hidden = at::arange(keys) > at::arange(before, keys).unsqueeze(1);
  const Tensor scores = at::matmul(in[0], key.transpose(2, 3)) * scale;
  return at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), value);
}

enum class By { kLoops, kFlash };

void expect_whole(By by, const Case& c, at::ScalarType type, const std::string& what) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.size));
  const int64_t keys = c.before + c.length;
  const std::vector<Tensor> exact{
      random({2, c.heads, c.length, c.size}).to(type).to(at::kDouble),
      random({2, c.kv_heads, keys, c.size}, 2).to(type).to(at::kDouble),
      random({2, c.kv_heads, keys, c.size}, 3).to(type).to(at::kDouble)};
  for (const Tensor& x : exact) {
    x.set_requires_grad(true);
  }
  const Tensor whole = attend_plainly(exact, c.before, scale);
  const Tensor direction = random(whole.sizes(), 4).to(type);
  whole.backward(direction.to(at::kDouble));

  const Tensor q = exact[0].detach().to(type), k = exact[1].detach().to(type),
               v = exact[2].detach().to(type);
  const auto first = [&](const Tensor& x) { return x.narrow(2, 0, c.before); };
  const auto second = [&](const Tensor& x) { return x.narrow(2, c.before, c.length); };
  ASSERT_TRUE(by == By::kFlash || has_attention_part(q, k));
  const auto forward = [&](const Tensor& key, const Tensor& value, PartSees sees) {
    return by == By::kFlash ? flash_part(q, key, value, scale, sees)
                            : attention_part(q, key, value, scale, sees);
  };
  const AttentionPart all = forward(first(k), first(v), PartSees::kAll);
  const AttentionPart own = forward(second(k), second(v), PartSees::kEarlier);
  const AttentionPart found{own.out.clone(), own.log_sum.clone()};
  add_attention_part(found, all);
  const double limit = limit_of(type);
  EXPECT_LT(error(found.out, whole.detach()), limit) << what;
  // Merges in float32 into the middle rows of a larger, empty result.
  const auto floats = at::TensorOptions(at::kFloat);
  const int64_t rows = c.length + 3;
  const AttentionPart more{
      at::zeros({2, rows, c.heads, c.size}, floats).transpose(1, 2),
      at::full({2, c.heads, rows}, -INFINITY, floats)};
  const auto middle = [&](const Tensor& x) { return x.narrow(2, 2, c.length); };
  for (const AttentionPart& part : {own, all}) {
    add_attention_part({middle(more.out), middle(more.log_sum)}, part);
  }
  EXPECT_LT(error(middle(more.out), whole.detach()), limit) << what;
  EXPECT_LT(error(middle(more.log_sum), found.log_sum), 1e-5) << what;
  EXPECT_EQ(more.out.narrow(2, 0, 2).abs().max().item<float>(), 0) << what;
  const auto backward = [&](const Tensor& key, const Tensor& value, PartSees sees) {
    return by == By::kFlash ? flash_part_backward(direction, found, q, key, value, scale, sees)
                            : attention_part_backward(direction, found, q, key, value, scale, sees);
  };
  const auto of_all = backward(first(k), first(v), PartSees::kAll);
  const auto of_own = backward(second(k), second(v), PartSees::kEarlier);
  EXPECT_LT(error(of_all.query.to(at::kFloat) + of_own.query, exact[0].grad()), limit) << what;
  EXPECT_LT(error(at::cat({of_all.key, of_own.key}, 2), exact[1].grad()), limit) << what;
  EXPECT_LT(error(at::cat({of_all.value, of_own.value}, 2), exact[2].grad()), limit) << what;
}

TEST(AttentionPart, PartsMakeTheWholeOnEveryMatrixUnit) {
  const MatrixUnit best = find_matrix_unit();
  for (const MatrixUnit unit : {MatrixUnit::kAvx512, MatrixUnit::kBfloat16, MatrixUnit::kAmx}) {
    if (unit > best) {
      continue;
    }
    matrix_unit() = unit;
    for (const Case& c : std::vector<Case>{
             {2, 2, 1, 2, 8}, {4, 2, 64, 65, 40}, {3, 1, 130, 63, 64}, {2, 2, 7, 200, 96}}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        if (type == at::kBFloat16 && unit == MatrixUnit::kAvx512) {
          continue;
        }
        expect_whole(
            By::kLoops,
            c,
            type,
            fmt::format(
                "unit {}, {}, {} + {} keys of {}",
                static_cast<int>(unit),
                c10::toString(type),
                c.before,
                c.length,
                c.size));
      }
    }
  }
  matrix_unit() = best;
}

/// The computation of ring attention on GPUs, with the same ATen operation on a CPU.
TEST(AttentionPart, PartsOfFlashAttentionMakeTheWhole) {
  for (const Case& c :
       std::vector<Case>{{2, 2, 1, 2, 8}, {4, 2, 64, 65, 40}, {3, 1, 130, 63, 64}}) {
    expect_whole(By::kFlash, c, at::kFloat, fmt::format("{} + {} keys", c.before, c.length));
  }
}

}  // namespace attention_part_test
}  // namespace lockstep::ops
