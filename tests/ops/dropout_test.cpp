// Counter-based dropout, for whole tensors, slices and packed documents.
#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace dropout_test {

Tensor keys_of(std::vector<int64_t> keys) {
  return at::tensor(keys, at::kLong);
}

TEST(Dropout, DropsWhatItsDefinitionSays) {
  const Tensor x = at::ones({3, 5, 7});
  const Tensor y = dropout(x, 0.3, keys_of({11, -5, 1LL << 60})).flatten(1);
  const auto threshold = static_cast<uint32_t>(0.3 * 0x1p32 + 0.5);
  const int64_t keys[] = {11, -5, 1LL << 60};
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t e = 0; e < 35; ++e) {
      const uint64_t word =
          random_bits(static_cast<uint64_t>(keys[row]), static_cast<uint64_t>(e / 2));
      const auto half = static_cast<uint32_t>(e % 2 == 0 ? word : word >> 32);
      const float wanted = half >= threshold ? 1 / 0.7F : 0;
      EXPECT_NEAR(y[row][e].item<float>(), wanted, 1e-6) << row << " " << e;
    }
  }
}

TEST(Dropout, TheLoopIsTheTensorVersion) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t size : {1, 2, 15, 16, 17, 1000}) {
      const Tensor x = random({4, 3, size}).to(type);
      const Tensor keys = keys_of({1, 2, 3, -4});
      EXPECT_TRUE(at::equal(dropout(x, 0.1, keys), dropout_by_tensors(x, 0.1, keys))) << size;
    }
  }
}

TEST(Dropout, APartDrawsTheWholesMask) {
  const Tensor x = random({2, 6, 5, 9}), keys = keys_of({7, 8});
  const Tensor whole = dropout(x, 0.4, keys);
  for (const auto& [dim, begin, size] :
       std::vector<std::array<int64_t, 3>>{{1, 2, 3}, {2, 1, 3}, {3, 4, 5}, {3, 1, 1}, {1, 5, 1}}) {
    DropoutRegion region{{0, 0, 0}, {6, 5, 9}};
    region.begin[static_cast<size_t>(dim - 1)] = begin;
    const Tensor part = x.narrow(dim, begin, size);
    EXPECT_TRUE(at::equal(dropout(part, 0.4, keys, region), whole.narrow(dim, begin, size)));
    EXPECT_TRUE(
        at::equal(dropout_by_tensors(part, 0.4, keys, region), whole.narrow(dim, begin, size)));
  }
  // A row alone draws the same mask.
  EXPECT_TRUE(at::equal(
      dropout(x.narrow(0, 1, 1), 0.4, keys.narrow(0, 1, 1).clone()), whole.narrow(0, 1, 1)));
}

/// Two documents of 5 and 4 tokens in a row draw the same masks as each in a row of its own: for
/// activations and slices of them, and for blocks of probabilities.
TEST(Dropout, DocumentsOfARowDrawTheirOwnMasks) {
  const Tensor keys = keys_of({7, -8});
  const Tensor document = keys_of({0, 0, 0, 0, 0, 1, 1, 1, 1});
  const Tensor place = keys_of({0, 1, 2, 3, 4, 0, 1, 2, 3});
  const Tensor of_tokens = at::stack({keys.index({document}), place}, 1).unsqueeze(0);  // [1, 9, 2]
  const Tensor x = random({1, 9, 7});
  const Tensor wanted = at::cat(
      {dropout(x.narrow(1, 0, 5), 0.4, keys_of({7})),
       dropout(x.narrow(1, 5, 4), 0.4, keys_of({-8}))},
      1);
  EXPECT_TRUE(at::equal(dropout_of_tokens(x, 0.4, of_tokens), wanted));
  EXPECT_TRUE(at::equal(
      dropout_of_tokens(
          x.narrow(1, 3, 4).narrow(2, 2, 3).contiguous(), 0.4, of_tokens, {{3, 2}, {9, 7}}),
      wanted.narrow(1, 3, 4).narrow(2, 2, 3)));

  const Tensor seen = at::ones({1, 3, 9, 9});
  const auto mask_of = [&](int64_t key, int64_t tokens) {
    return dropout_of_probabilities(at::ones({1, 3, tokens, tokens}), 0.4, keys_of({key}), {});
  };
  const Tensor found = dropout_of_probabilities(seen, 0.4, of_tokens, {});
  EXPECT_TRUE(at::equal(found.narrow(2, 0, 5).narrow(3, 0, 5), mask_of(7, 5)));
  EXPECT_TRUE(at::equal(found.narrow(2, 5, 4).narrow(3, 5, 4), mask_of(-8, 4)));
  const Tensor part = dropout_of_probabilities(
      at::ones({1, 2, 4, 3}), 0.4, of_tokens, {.head = 1, .query = 4, .key = 5, .heads = 3});
  EXPECT_TRUE(
      at::equal(part.narrow(2, 1, 3), found.narrow(1, 1, 2).narrow(2, 5, 3).narrow(3, 5, 3)));
  // The implementation with tensor operations, as used on other devices, draws the same.
  const Tensor firsts = keys_of({-3, 5, 1LL << 40}), three = keys_of({1, 2, 3});
  const Tensor y = random({3, 9});
  EXPECT_TRUE(at::equal(
      dropout(y, 0.4, three, {{0}, {9}, firsts}),
      dropout_by_tensors(y, 0.4, three, {{0}, {9}, firsts})));
}

TEST(Dropout, GradientHasTheSameMask) {
  const Tensor x = at::ones({2, 40}).set_requires_grad(true);
  const Tensor y = dropout(x, 0.5, keys_of({1, 2}));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
}

TEST(Dropout, RateAndMeanAreRight) {
  const Tensor x = at::ones({1, 1 << 20});
  const Tensor y = dropout(x, 0.1, keys_of({3}));
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), 0.1, 2e-3);
  EXPECT_NEAR(y.mean().item<double>(), 1, 3e-3);
  // Adjacent elements, which share a word, are independent.
  const Tensor zero = (y == 0).view({-1, 2}).to(at::kFloat);
  EXPECT_NEAR((zero.select(1, 0) * zero.select(1, 1)).mean().item<double>(), 0.01, 1e-3);
}

TEST(Noise, IsWhatItsDefinitionSays) {
  const int64_t keys[] = {11, -5};
  const Tensor noise =
      add_noise_to_tokens(at::zeros({2, 3, 5}), 0.25, keys_of({11, -5})).flatten(1);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t e = 0; e < 15; ++e) {
      const uint64_t word =
          random_bits(static_cast<uint64_t>(keys[row]), static_cast<uint64_t>(e / 2));
      const auto half = static_cast<uint32_t>(e % 2 == 0 ? word : word >> 32);
      const float unit = static_cast<float>(half >> 8) * 0x1p-24F;
      EXPECT_EQ(noise[row][e].item<float>(), 0.25F * (2 * unit - 1)) << row << " " << e;
    }
  }
}

/// A uniform variable in [-b, b] has mean 0 and variance b^2 / 3.
TEST(Noise, IsUniformAndTheGradientPasses) {
  constexpr int64_t kCount = 1 << 18;
  const Tensor x = at::full({1, 64, kCount / 64}, 2.0F).set_requires_grad(true);
  const Tensor y = add_noise_to_tokens(x, 0.3, keys_of({3}));
  const Tensor noise = (y.detach() - 2).to(at::kDouble);
  EXPECT_NEAR(noise.mean().item<double>(), 0, 1.5e-3);
  EXPECT_NEAR(noise.square().mean().item<double>(), 0.03, 2e-4);
  EXPECT_NEAR(noise.min().item<double>(), -0.3, 3e-5);
  EXPECT_NEAR(noise.max().item<double>(), 0.3, 3e-5);
  const Tensor counts = at::histc(noise, 10, -0.3, 0.3) / kCount;
  EXPECT_LT((counts - 0.1).abs().max().item<double>(), 2.5e-3);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones_like(x)));
}

/// A slice, a row alone and a document of a packed row have the noise that they have in the whole.
TEST(Noise, DependsOnSamplePositionAndColumnOnly) {
  const Tensor x = random({2, 9, 7}), keys = keys_of({7, -8});
  const Tensor whole = add_noise_to_tokens(x, 0.4, keys);
  EXPECT_FALSE(at::equal(whole[0] - x[0], whole[1] - x[1]));
  const Tensor part = x.narrow(1, 3, 4).contiguous();
  EXPECT_TRUE(
      at::equal(add_noise_to_tokens(part, 0.4, keys, {{3, 0}, {9, 7}}), whole.narrow(1, 3, 4)));
  EXPECT_TRUE(
      at::equal(add_noise_to_tokens(x.narrow(0, 1, 1), 0.4, keys_of({-8})), whole.narrow(0, 1, 1)));
  const Tensor row = at::cat({x.narrow(0, 0, 1).narrow(1, 0, 5), x.narrow(0, 1, 1)}, 1);
  const Tensor document = at::cat({at::zeros({5}, at::kLong), at::ones({9}, at::kLong)});
  const Tensor place = at::cat({at::arange(5), at::arange(9)});
  const Tensor of_tokens = at::stack({keys.index({document}), place}, 1).unsqueeze(0);
  EXPECT_TRUE(at::equal(
      add_noise_to_tokens(row, 0.4, of_tokens),
      at::cat({whole.narrow(0, 0, 1).narrow(1, 0, 5), whole.narrow(0, 1, 1)}, 1)));
}

TEST(Dropout, OddCalls) {
  const Tensor x = random({2, 3});
  EXPECT_TRUE(dropout(x, 0, Tensor()).is_same(x));
  EXPECT_EQ(dropout(at::empty({2, 0}), 0.5, keys_of({1, 2})).numel(), 0);
  EXPECT_THROW(dropout(x, 1, keys_of({1, 2})), Error);
  EXPECT_THROW(dropout(x, -0.1, keys_of({1, 2})), Error);
  EXPECT_THROW(dropout(x, 0.5, keys_of({1})), Error);
  EXPECT_THROW(dropout(x, 0.5, Tensor()), Error);
  EXPECT_THROW(dropout(x, 0.5, keys_of({1, 2}), {{2}, {4}}), Error);
}

}  // namespace dropout_test
}  // namespace lockstep::ops
