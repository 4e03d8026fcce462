// The token loss, by ATen's products and by every matrix unit of this processor, compared with
// float64 references.
#include "ops/token_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/machine.h"
#include "ops/expect_close.h"
#include "ops/gradient_sink.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace token_loss_test {

/// One test for each version of the loops that can run here.
class TokenLoss : public testing::TestWithParam<MatrixUnit> {
 protected:
  void SetUp() override {
    if (GetParam() > best_) {
      GTEST_SKIP() << "this processor does not have it";
    }
    matrix_unit() = GetParam();
  }
  void TearDown() override { matrix_unit() = best_; }

 private:
  MatrixUnit best_ = find_matrix_unit();
};

INSTANTIATE_TEST_SUITE_P(
    Units,
    TokenLoss,
    testing::Values(
        MatrixUnit::kNone, MatrixUnit::kAvx512, MatrixUnit::kBfloat16, MatrixUnit::kAmx));

/// Returns pseudo-random targets, some of them ignored.
Tensor some_targets(int64_t rows, int64_t vocabulary) {
  Tensor targets = at::remainder(at::arange(rows) * 7919, vocabulary);
  if (rows > 2) {
    targets[1] = kIgnoredTarget;
    targets[rows - 1] = kIgnoredTarget;
  }
  return targets;
}

/// Compares with the reference in float32 and bfloat16.
void expect_right(int64_t rows, int64_t size, int64_t vocabulary, const TokenLossOptions& options) {
  // Small logits, because ATen's products round them to bfloat16.
  const double spread = std::min(1.0, 1.5 / std::sqrt(static_cast<double>(size)));
  const Tensor targets = some_targets(rows, vocabulary);
  const auto run = [&](const std::vector<Tensor>& in) {
    return token_loss(in[0], in[1], targets, options);
  };
  const auto exact = [&](const std::vector<Tensor>& in) {
    return token_loss_reference(in[0], in[1], targets, options);
  };
  expect_close(
      run,
      exact,
      {random({rows, size}) * spread, random({vocabulary, size}, 2)},
      fmt::format("{} {} {}", rows, size, vocabulary));
}

TEST_P(TokenLoss, LossAndBothGradients) {
  for (const auto& [rows, size, vocabulary] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 3, 2},
           {5, 16, 1},
           {33, 20, 101},
           {300, 8, 1000},
           {64, 12, 257},
           {65, 48, 513},
           {130, 100, 1537}}) {
    expect_right(rows, size, vocabulary, {});
  }
}

TEST_P(TokenLoss, SoftCapAndZLoss) {
  for (const int64_t rows : {3, 70}) {
    TokenLossOptions options;
    options.softcap = 3;
    expect_right(rows, 24, 700, options);
    options.z_loss = 0.02;
    expect_right(rows, 33, 300, options);
    options.softcap = 0;
    expect_right(rows, 16, 90, options);
  }
}

TEST_P(TokenLoss, LabelSmoothing) {
  for (const int64_t rows : {1, 3, 70}) {
    TokenLossOptions options;
    options.label_smoothing = 0.3;
    expect_right(rows, 24, 700, options);
    options.rows_at_once = 16;
    options.z_loss = 0.02;
    options.row_weights = at::linspace(-2, 3, rows);
    expect_right(rows, 33, 101, options);
  }
  TokenLossOptions capped;
  capped.label_smoothing = 0.3;
  capped.softcap = 3;
  EXPECT_THROW(token_loss(random({2, 8}), random({9, 8}), some_targets(2, 9), capped), Error);
}

TEST_P(TokenLoss, RowsOfWeights) {
  for (const int64_t rows : {3, 70}) {
    TokenLossOptions options;
    options.row_weights = at::linspace(-2, 3, rows);  // includes a zero weight
    options.row_weights[rows / 2] = 0;
    expect_right(rows, 24, 700, options);
    options.rows_at_once = 16;
    options.z_loss = 0.02;
    options.softcap = 3;
    expect_right(rows, 33, 300, options);
  }
}

/// Distribution targets for every third row, from a reference head of another width.
DistributionTargets some_distributions(int64_t rows, int64_t size, int64_t vocabulary) {
  return {
      at::arange(rows).remainder(3).eq(0),
      random({rows, size}, 3) * 0.4,
      random({vocabulary, size}, 4)};
}

TEST_P(TokenLoss, RowsMayHaveDistributionsForTargets) {
  for (const int64_t rows : {1, 7, 70}) {
    const Tensor targets = some_targets(rows, 300);
    targets[0] = 0;
    TokenLossOptions options;
    options.distributions = some_distributions(rows, 11, 300);
    options.distributions.rows.logical_and_(targets.ne(kIgnoredTarget));
    options.row_weights = at::linspace(-1, 3, rows);
    options.rows_at_once = 16;
    for (const double softcap : {0.0, 3.0}) {
      options.softcap = softcap;
      for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
        TokenLossOptions own = options;
        own.distributions.hidden = options.distributions.hidden.to(type);
        own.distributions.weight = options.distributions.weight.to(type);
        const Tensor hidden = (random({rows, 24}) * 0.5).to(type),
                     weight = random({300, 24}, 2).to(type);
        const Tensor x = leaf(hidden, type), w = leaf(weight, type);
        const Tensor exact_x = leaf(hidden, at::kDouble), exact_w = leaf(weight, at::kDouble);
        TokenLossOptions exact = own;
        exact.distributions.hidden = own.distributions.hidden.to(at::kDouble);
        exact.distributions.weight = own.distributions.weight.to(at::kDouble);
        const Tensor loss = token_loss(x, w, targets, own);
        const Tensor wanted = token_loss_reference(exact_x, exact_w, targets, exact);
        loss.backward();
        wanted.backward();
        EXPECT_LT(error(loss.detach(), wanted.detach()), limit_of(type)) << rows;
        EXPECT_LT(error(x.grad(), exact_x.grad()), limit_of(type)) << rows;
        EXPECT_LT(error(w.grad(), exact_w.grad()), limit_of(type)) << rows;
        exact.row_weights = exact.distributions.rows.to(at::kDouble);
        EXPECT_LT(
            error(
                token_divergences(hidden, weight, own).sum(at::kDouble),
                token_loss_reference(exact_x.detach(), exact_w.detach(), targets, exact)),
            limit_of(type))
            << rows;
      }
    }
  }
}

/// Some rows have distribution targets with one lowered logit, over shards of the vocabulary.
TEST_P(TokenLoss, DistributionsMayHaveOneTokenLowered) {
  const int64_t rows = 23, vocabulary = 301;
  TokenLossOptions options;
  options.distributions = some_distributions(rows, 11, vocabulary);
  DistributionTargets& reference = options.distributions;
  reference.tokens = at::arange(rows) * 13;
  reference.lowered = at::arange(rows).remainder(2).to(at::kDouble) * 4;
  options.row_weights = at::linspace(-1, 3, rows);
  options.rows_at_once = 5;
  const Tensor targets = at::arange(rows) * 7;
  const Tensor hidden = random({rows, 24}) * 0.5, weight = random({vocabulary, 24}, 2);
  const Tensor x = leaf(hidden, at::kDouble), w = leaf(weight, at::kDouble);
  const Tensor exact_x = leaf(hidden, at::kDouble), exact_w = leaf(weight, at::kDouble);
  reference.hidden = reference.hidden.to(at::kDouble);
  reference.weight = reference.weight.to(at::kDouble);
  const Tensor loss = token_loss(x, w, targets, options);
  const Tensor wanted = token_loss_reference(exact_x, exact_w, targets, options);
  loss.backward();
  wanted.backward();
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-10 * std::abs(wanted.item<double>()));
  EXPECT_LT(error(x.grad(), exact_x.grad()), 1e-10);
  EXPECT_LT(error(w.grad(), exact_w.grad()), 1e-10);
  const Tensor whole = token_divergences(hidden.to(at::kDouble), weight.to(at::kDouble), options);
  options.row_weights = reference.rows.to(at::kDouble);
  EXPECT_NEAR(
      whole.sum().item<double>(),
      token_loss_reference(exact_x.detach(), exact_w.detach(), targets, options).item<double>(),
      1e-9);
}

/// Level rows, together with rows that have distribution and token targets.
TEST_P(TokenLoss, RowsMayBeLevel) {
  const int64_t rows = 23, vocabulary = 301;
  const Tensor targets = some_targets(rows, vocabulary);
  const Tensor counted = targets.ne(kIgnoredTarget);
  for (const bool compares : {false, true}) {
    TokenLossOptions options;
    if (compares) {
      options.distributions = some_distributions(rows, 11, vocabulary);
      options.distributions.rows.logical_and_(counted);
    }
    options.distributions.level = at::arange(rows).remainder(3).eq(1).logical_and(counted);
    options.row_weights = at::linspace(-1, 3, rows);
    options.rows_at_once = 5;
    options.z_loss = 0.01;
    for (const auto& [type, softcap] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kDouble, 0}, {at::kFloat, 3}, {at::kBFloat16, 0}}) {
      options.softcap = softcap;
      const Tensor hidden = (random({rows, 24}) * 0.5).to(type),
                   weight = random({vocabulary, 24}, 2).to(type);
      TokenLossOptions own = options, exact = options;
      for (const auto& [each, of] :
           {std::pair(&own, type), std::pair(&exact, at::ScalarType(at::kDouble))}) {
        if (compares) {
          each->distributions.hidden = options.distributions.hidden.to(type).to(of);
          each->distributions.weight = options.distributions.weight.to(type).to(of);
        }
      }
      const Tensor x = leaf(hidden, type), w = leaf(weight, type);
      const Tensor exact_x = leaf(hidden, at::kDouble), exact_w = leaf(weight, at::kDouble);
      const Tensor loss = token_loss(x, w, targets, own);
      const Tensor wanted = token_loss_reference(exact_x, exact_w, targets, exact);
      loss.backward();
      wanted.backward();
      EXPECT_LT(error(loss.detach(), wanted.detach()), limit_of(type));
      EXPECT_LT(error(x.grad(), exact_x.grad()), limit_of(type));
      EXPECT_LT(error(w.grad(), exact_w.grad()), limit_of(type));
      exact.row_weights = exact.distributions.all().to(at::kDouble);
      exact.z_loss = 0;
      EXPECT_LT(
          error(
              token_divergences(hidden, weight, own).sum(at::kDouble),
              token_loss_reference(exact_x.detach(), exact_w.detach(), targets, exact)),
          limit_of(type));
    }
  }
}

/// Equal largest logits share the gradient.
TEST_P(TokenLoss, LargestLogitsOfLevelRowsMayBeEqual) {
  const Tensor x = leaf(at::ones({1, 1}), at::kFloat);
  const Tensor w = leaf(at::tensor({1.0F, 3.0F, 3.0F, -3.0F}).view({4, 1}), at::kFloat);
  TokenLossOptions options;
  options.distributions.level = at::ones({1}, at::kBool);
  const Tensor loss = token_loss(x, w, at::zeros({1}, at::kLong), options);
  loss.backward();
  EXPECT_FLOAT_EQ(loss.item<float>(), 4);  // (3 - 1)^2
  EXPECT_TRUE(w.grad().flatten().equal(at::tensor({-1.0F, 1.0F, 1.0F, -1.0F})));
}

TEST_P(TokenLoss, TheLargestLogitMayComeLate) {
  // Rows whose logits grow by more than e^20 from one piece of the vocabulary to the next.
  const Tensor hidden = random({70, 20});
  const Tensor weight = random({1500, 20}, 2) * at::linspace(0.1, 12, 1500).unsqueeze(1);
  const Tensor targets = some_targets(70, 1500);
  const auto run = [&](const std::vector<Tensor>& in) { return token_loss(in[0], in[1], targets); };
  const auto exact = [&](const std::vector<Tensor>& in) {
    return token_loss_reference(in[0], in[1], targets);
  };
  const auto got = value_and_gradients(run, {hidden, weight}, at::kFloat);
  const auto wanted = value_and_gradients(exact, {hidden, weight}, at::kDouble);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT(error(got[i], wanted[i]), 2e-5) << i;
  }
}

TEST_P(TokenLoss, PartsOfTheVocabularyGiveTheWhole) {
  const int64_t rows = 67, size = 24, vocabulary = 611;
  const std::vector<int64_t> edges{0, 7, 300, 611};
  const Tensor targets = some_targets(rows, vocabulary);
  for (const auto& [type, smoothing] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kFloat, 0}, {at::kBFloat16, 0}, {at::kFloat, 0.2}, {at::kBFloat16, 0.2}}) {
    const Tensor hidden = (random({rows, size}) * 0.6).to(type),
                 weight = random({vocabulary, size}, 2).to(type);
    TokenLossOptions options;
    options.z_loss = 0.01;
    options.softcap = smoothing > 0 ? 0 : 5;
    options.label_smoothing = smoothing;
    const Tensor exact_hidden = leaf(hidden, at::kDouble), exact_weight = leaf(weight, at::kDouble);
    const Tensor exact = token_loss_reference(exact_hidden, exact_weight, targets, options);
    exact.backward();
    options.vocabulary = vocabulary;
    options.rows_at_once = 30;
    // Statistics of each shard, run by run; then every shard receives the combined ones.
    std::vector<std::vector<RowStatistics>> known(edges.size() - 1);
    const auto part = [&](size_t i) {
      options.first_token = edges[i];
      return weight.narrow(0, edges[i], edges[i + 1] - edges[i]);
    };
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      options.combine = [&](RowStatistics& own) { known[i].push_back(own); };
      token_loss(hidden, part(i), targets, options);
    }
    Tensor hidden_gradient = at::zeros({rows, size}, at::kDouble);
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      size_t run = 0;
      options.combine = [&](RowStatistics& own) {
        own = known[0][run];
        for (size_t other = 1; other < known.size(); ++other) {
          own = combine_statistics(own, known[other][run]);
        }
        ++run;
      };
      const Tensor x = leaf(hidden, type), w = leaf(part(i), type);
      const Tensor loss = token_loss(x, w, targets, options);
      EXPECT_EQ(run, 3U);
      EXPECT_LT(error(loss, exact.detach()), limit_of(type));
      loss.backward();
      hidden_gradient += x.grad();
      EXPECT_LT(
          error(w.grad(), exact_weight.grad().narrow(0, edges[i], edges[i + 1] - edges[i])),
          limit_of(type));
    }
    EXPECT_LT(error(hidden_gradient, exact_hidden.grad()), limit_of(type));
  }
}

TEST_P(TokenLoss, ThreadsDoNotChangeABit) {
  const Tensor targets = some_targets(200, 1300);
  const auto run = [&](const std::vector<Tensor>& in) { return token_loss(in[0], in[1], targets); };
  const int threads = at::get_num_threads();
  const auto one = value_and_gradients(run, {random({200, 40}), random({1300, 40}, 2)}, at::kFloat);
  at::set_num_threads(3);
  const auto three =
      value_and_gradients(run, {random({200, 40}), random({1300, 40}, 2)}, at::kFloat);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_LT(error(three[i], one[i]), GetParam() == MatrixUnit::kNone ? 1e-6 : 1e-30) << i;
  }
}

TEST_P(TokenLoss, ManyRunsGiveTheResultOfOne) {
  const Tensor targets = at::remainder(at::arange(300) * 104729, 70);
  targets.narrow(0, 20, 90).fill_(kIgnoredTarget);
  for (const int64_t rows : {1, 64, 209, 210}) {
    TokenLossOptions at_once;
    at_once.rows_at_once = rows;
    const auto run = [&](const std::vector<Tensor>& in) {
      return token_loss(in[0], in[1], targets, at_once);
    };
    const auto exact = [&](const std::vector<Tensor>& in) {
      return token_loss_reference(in[0], in[1], targets);
    };
    expect_close(run, exact, {random({300, 9}), random({70, 9}, 2)}, fmt::format("{} rows", rows));
  }
}

/// A sink that provides a parameter's gradient memory repeatedly.
struct Lender : GradientSink {
  Tensor memory;
  int* asked;
  Lender(Tensor memory, int* asked) : memory(std::move(memory)), asked(asked) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override {}
  GradientPlace lend(Makes /*makes*/) override {
    ++*asked;
    return {memory};
  }
};

TEST_P(TokenLoss, TheWeightsGradientIsMadeInThePlaceGiven) {
  const Tensor targets = some_targets(70, 300);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows_at_once : {0, 32}) {
      const Tensor hidden = leaf(random({70, 24}), type), weight = leaf(random({300, 24}, 2), type);
      TokenLossOptions options;
      options.rows_at_once = rows_at_once;
      (token_loss(hidden, weight, targets, options) * 3).backward();
      const Tensor own = weight.grad().clone();
      weight.mutable_grad().reset();
      const Tensor buffer = at::full({301, 24}, 7, type);
      int asked = 0;
      torch::autograd::impl::set_post_acc_grad_hooks(
          weight, std::make_unique<Lender>(buffer.narrow(0, 0, 300), &asked));
      (token_loss(hidden, weight, targets, options) * 3).backward();
      EXPECT_FALSE(weight.grad().defined());
      EXPECT_TRUE(at::equal(buffer.narrow(0, 0, 300), own)) << type;
      EXPECT_EQ(buffer[300][0].item<float>(), 7);
      EXPECT_EQ(asked, 1);
    }
  }
}

TEST_P(TokenLoss, LargeLogitsStayFinite) {
  const Tensor hidden = leaf(at::full({2, 1}, 100), at::kFloat);
  const Tensor weight = at::tensor({10.0F, -10.0F, 9.0F}).unsqueeze(1);
  const Tensor loss = token_loss(hidden, weight, at::tensor({0, 1}, at::kLong));
  EXPECT_NEAR(loss.item<double>(), 2000, 1e-3);
  loss.backward();
  EXPECT_NEAR(hidden.grad()[1].item<double>(), 20, 1e-4);
}

TEST_P(TokenLoss, NothingCountsAndNotANumberShows) {
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

TEST_P(TokenLoss, WithoutAGradientAndFrozen) {
  const Tensor hidden = random({6, 3}), weight = random({5, 3}, 2), targets = at::arange(6) % 5;
  const Tensor wanted = token_loss_reference(hidden, weight, targets);
  EXPECT_LT(error(token_loss(hidden, weight, targets), wanted), 1e-6);
  const Tensor learned = leaf(hidden, at::kFloat);
  token_loss(learned, weight, targets).backward();
  const Tensor reference = leaf(hidden, at::kFloat);
  token_loss_reference(reference, weight, targets).backward();
  EXPECT_LT(error(learned.grad(), reference.grad()), 1e-6);
}

TEST_P(TokenLoss, ALabelOutOfBoundsIsNamed) {
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

TEST_P(TokenLoss, Scores) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor hidden = random({50, 6}).to(type), weight = random({37, 6}, 2).to(type);
    Tensor targets = at::linear(hidden, weight).argmax(1);
    targets.narrow(0, 0, 20).fill_(3);
    targets.narrow(0, 40, 10).fill_(kIgnoredTarget);
    const TokenScores got = token_scores(hidden, weight, targets);
    const Tensor sum = got.log_likelihoods.sum(at::kDouble);
    EXPECT_LT(error(sum.neg(), token_loss_reference(hidden, weight, targets)), 1e-5);
    EXPECT_EQ(got.log_likelihoods.narrow(0, 40, 10).ne(0).sum().item<int64_t>(), 0);
    EXPECT_TRUE(got.likeliest.equal(at::linear(hidden, weight).argmax(1).eq(targets)));
  }
}

}  // namespace token_loss_test
}  // namespace lockstep::ops
