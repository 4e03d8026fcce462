#include "optim/optimizer.h"

#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "optim/gradient_norm.h"

namespace lockstep::optim {
namespace {

at::Tensor random(int64_t count, uint64_t seed, at::ScalarType type = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({count}, generator).to(type);
}

std::string problem_of(const OptimizerOptions& options) {
  try {
    make_optimizer(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.message();
  }
  return "";
}

TEST(Optimizer, DecaysTheLeadingElementsOnly) {
  // With no gradient only decay moves a weight.
  OptimizerOptions options;
  options.weight_decay = 0.5;
  const auto optimizer = make_optimizer(options);
  const at::Tensor weights = at::ones({5});
  optimizer->add({.name = "block", .parameter = weights, .gradient = at::zeros({5}), .decayed = 3});
  optimizer->step(0.1);
  EXPECT_TRUE(at::equal(weights, at::tensor({0.95F, 0.95F, 0.95F, 1.0F, 1.0F}))) << weights;
}

TEST(Optimizer, EqualsOneUpdateOfTheWholeWhateverTheShards) {
  const int64_t count = 1003;
  const at::Tensor start = random(count, 1);
  const auto run = [&](const std::vector<int64_t>& sizes) {
    OptimizerOptions options;
    options.weight_decay = 0.1;
    const auto optimizer = make_optimizer(options);
    const at::Tensor weights = start.clone();
    int64_t first = 0;
    for (const int64_t size : sizes) {
      optimizer->add(
          {.name = "part",
           .parameter = weights.narrow(0, first, size),
           .decayed = std::clamp<int64_t>(700 - first, 0, size)});
      first += size;
    }
    for (int step = 0; step < 3; ++step) {
      const at::Tensor gradient = random(count, 10 + step);
      first = 0;
      for (int64_t i = 0; i < optimizer->size(); ++i) {
        const int64_t size = optimizer->shard(i).parameter.numel();
        optimizer->shard(i).gradient = gradient.narrow(0, first, size);
        first += size;
      }
      optimizer->step(1e-2, 0.5);
    }
    return weights;
  };
  const at::Tensor whole = run({count});
  EXPECT_TRUE(at::equal(whole, run({0, 1, 333, 669})));
  EXPECT_FALSE(at::equal(whole, start));
}

TEST(Optimizer, ContinuesFromItsVisitedState) {
  OptimizerOptions options;
  const at::Tensor weights = random(17, 1, at::kBFloat16);
  const at::Tensor master = weights.to(at::kFloat);
  const at::Tensor gradient = random(17, 2, at::kBFloat16);
  const Shard shard{
      .name = "head", .parameter = weights, .master = master, .gradient = gradient, .decayed = 17};
  const auto first = make_optimizer(options);
  first->add(shard);
  first->step(1e-2);
  first->step(1e-2);

  // Saved by name, and loaded into another.
  Shard copy = shard;
  copy.parameter = weights.clone();
  copy.master = master.clone();
  const auto second = make_optimizer(options);
  second->add(copy);
  second->set_steps(first->steps());
  std::vector<std::pair<std::string, at::Tensor>> saved;
  first->visit_state(0, [&](std::string_view name, at::Tensor& state, StateLayout layout) {
    EXPECT_EQ(layout, StateLayout::kElementwise);
    EXPECT_EQ(state.numel(), 17);
    saved.emplace_back(name, state.clone());
  });
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0].first, "exp_avg");
  EXPECT_EQ(saved[1].first, "exp_avg_sq");
  size_t next = 0;
  second->visit_state(0, [&](std::string_view name, at::Tensor& state, StateLayout) {
    EXPECT_EQ(name, saved[next].first);
    state.copy_(saved[next++].second);
  });
  first->step(1e-2);
  second->step(1e-2);
  EXPECT_TRUE(at::equal(master, copy.master));
  EXPECT_TRUE(at::equal(weights, copy.parameter));
  EXPECT_TRUE(at::equal(weights, master.to(at::kBFloat16)));
}

TEST(Optimizer, TellsEveryProblemOfItsOptions) {
  OptimizerOptions options;
  options.optim = "adamw_torch_fussed";
  options.adam_beta2 = 1.0;
  options.weight_decay = std::nan("");
  EXPECT_EQ(
      problem_of(options),
      "training.optim is 'adamw_torch_fussed', which is not one of adamw, adamw_torch, "
      "adamw_torch_fused. Did you mean 'adamw_torch_fused'?\n"
      "training.adam_beta2 is 1; it must be in [0, 1)\n"
      "training.weight_decay is nan; it must not be negative");
}

TEST(Optimizer, RefusesShardsThatDoNotGoTogether) {
  const auto optimizer = make_optimizer({});
  EXPECT_THROW(optimizer->add({.name = "a"}), Error);
  EXPECT_THROW(optimizer->add({.name = "a", .parameter = at::ones({2}), .decayed = 3}), Error);
  EXPECT_THROW(optimizer->add({.name = "a", .parameter = at::ones({2}, at::kBFloat16)}), Error);
  EXPECT_THROW(
      optimizer->add({.name = "a", .parameter = at::ones({2}), .master = at::ones({3})}), Error);
  optimizer->add({.name = "a", .parameter = at::ones({2})});
  EXPECT_THROW(optimizer->step(0.1), Error);  // no gradient
  optimizer->shard(0).gradient = at::ones({3});
  EXPECT_THROW(optimizer->step(0.1), Error);  // of another size
}

TEST(GradientNorm, EqualsTheSumOfSquaresInFloat64) {
  for (const int64_t count : {0, 1, 2, 31, 32, 33, 1000, 65535, 65536, 65537, 300001}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor flat = random(count, 5, type);
      const double expected = flat.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(squared_norm(flat), expected, 1e-12 * expected) << count;
    }
  }
  EXPECT_EQ(squared_norm(at::Tensor()), 0);
}

TEST(GradientNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const at::Tensor flat = random(1000003, 6);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = squared_norm(flat);
  at::set_num_threads(3);
  EXPECT_EQ(squared_norm(flat), one);
  at::set_num_threads(threads);
}

TEST(GradientNorm, DoesNotOverflowWhereFloat32Would) {
  EXPECT_NEAR(squared_norm(at::full({100}, 1e30)), 1e62, 1e56);
  EXPECT_NEAR(squared_norm(at::full({100}, 1e-30)) * 1e58, 1.0, 1e-6);
}

TEST(GradientNorm, FindsTheFirstThatIsNotANumber) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor flat = random(200003, 7, type);
    EXPECT_EQ(first_non_finite(flat), std::nullopt);
    flat[200002] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(first_non_finite(flat), 200002);
    EXPECT_TRUE(std::isnan(squared_norm(flat)));
    flat[70000] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_non_finite(flat), 70000);
    flat[0] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_non_finite(flat), 0);
  }
  EXPECT_EQ(first_non_finite(at::Tensor()), std::nullopt);
  EXPECT_THROW(squared_norm(at::ones({4}, at::kDouble)), Error);
}

TEST(GradientNorm, Clips) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace lockstep::optim
