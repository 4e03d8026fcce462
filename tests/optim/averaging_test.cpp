// Optimizers with additional averages compared with their formulas in float64.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "numbers.h"
#include "optim/ademamix.h"
#include "optim/schedule_free.h"

namespace lockstep::optim {
namespace averaging_test {

constexpr int64_t kCount = 37;
constexpr double kDecay = 0.1;

at::Tensor random(uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({kCount}, generator);
}
at::Tensor gradient_of(int step) {
  return random(10 + static_cast<uint64_t>(step));
}
double rate_of(int step) {  // a warm-up from zero
  return step <= 3 ? 1e-2 * (step - 1) / 3.0 : 1e-2;
}

OptimizerOptions options_of(const std::string& optim) {
  OptimizerOptions options;
  options.optim = optim;
  options.weight_decay = kDecay;
  return options;
}

Shard shard_of(at::ScalarType type = at::kFloat) {
  Shard shard{.name = "weight"};
  shard.master = random(1);
  shard.parameter = type == at::kFloat ? shard.master : shard.master.to(type);
  shard.gradient = at::empty({kCount});
  return shard;
}

void train(Optimizer& optimizer, int from, int to) {
  for (int step = from; step <= to; ++step) {
    optimizer.shard(0).gradient.copy_(gradient_of(step));
    optimizer.step(rate_of(step), 0.5);
  }
}

struct Points {
  at::Tensor x, y;
};

Points plain_schedule_free(int steps) {
  at::Tensor z = random(1).to(at::kDouble), x = z.clone(), y = z.clone(), v = at::zeros_like(z);
  double highest = 0, sum = 0;
  for (int step = 1; step <= steps; ++step) {
    const at::Tensor g = gradient_of(step).to(at::kDouble) * 0.5;
    v = 0.999 * v + 0.001 * g.square();
    const at::Tensor direction = g / ((v / (1 - std::pow(0.999, step))).sqrt() + 1e-8) + kDecay * y;
    z = z - rate_of(step) * direction;
    highest = std::max(highest, rate_of(step));
    sum += highest * highest;
    const double c = sum > 0 ? highest * highest / sum : 0;
    x = (1 - c) * x + c * z;
    y = 0.1 * z + 0.9 * x;
  }
  return {x, y};
}

TEST(ScheduleFree, FollowsItsFormulasAndPutsItsAverages) {
  const Shard shard = shard_of();
  const auto optimizer = make_optimizer(options_of("schedule_free_adamw"));
  EXPECT_TRUE(optimizer->has_averages());
  optimizer->add(shard);
  optimizer->put_averages(0, true);  // before the first step the average is the model
  EXPECT_TRUE(shard.parameter.equal(random(1)));
  optimizer->put_averages(0, false);
  train(*optimizer, 1, 8);
  const Points expected = plain_schedule_free(8);
  numbers::expect_values(shard.parameter.to(at::kDouble), expected.y, "y");
  const at::Tensor trained = shard.parameter.clone();
  optimizer->put_averages(0, true);
  numbers::expect_values(shard.parameter.to(at::kDouble), expected.x, "x");
  optimizer->put_averages(0, false);
  EXPECT_TRUE(shard.parameter.equal(trained));
}

TEST(ScheduleFree, GoesOnFromWhatWasSavedToTheBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Shard shard = shard_of(type), other = shard_of(type);
    const auto first = make_optimizer(options_of("schedule_free_adamw"));
    first->add(shard);
    train(*first, 1, 5);
    first->put_averages(0, true);
    std::vector<at::Tensor> saved;
    first->visit_state(0, [&](const StatePiece& piece) { saved.push_back(piece.data.clone()); });
    ASSERT_EQ(saved.size(), 3U);
    other.parameter.copy_(shard.parameter);
    other.master.copy_(shard.master);
    const auto second = make_optimizer(options_of("schedule_free_adamw"));
    second->add(other);
    second->put_averages(0, true);
    size_t next = 0;
    second->visit_state(
        0, [&](const StatePiece& piece) { at::Tensor(piece.data).copy_(saved[next++]); });
    second->set_steps(5);
    for (Optimizer* optimizer : {first.get(), second.get()}) {
      optimizer->put_averages(0, false);
      train(*optimizer, 6, 9);
      optimizer->put_averages(0, true);
    }
    EXPECT_TRUE(other.parameter.equal(shard.parameter));
    EXPECT_TRUE(other.master.equal(shard.master));
    numbers::expect_values(
        shard.master.to(at::kDouble), plain_schedule_free(9).x, "after nine steps");
  }
}

TEST(ScheduleFree, IsRefusedWithoutMasters) {
  OptimizerOptions options = options_of("schedule_free_adamw");
  options.stochastic_rounding = true;
  EXPECT_THROW(make_optimizer(options), Error);
}

TEST(AdEMAMix, FollowsItsFormulas) {
  for (const double steps_of_growth : {0.0, 6.0}) {
    const Shard shard = shard_of();
    OptimizerOptions options = options_of("ademamix");
    options.ademamix = {
        .beta3 = 0.99, .alpha = 4, .t_alpha = steps_of_growth, .t_beta3 = steps_of_growth};
    const auto optimizer = make_optimizer(options);
    optimizer->add(shard);
    at::Tensor w = random(1).to(at::kDouble), m = at::zeros_like(w), s = m.clone(), v = m.clone();
    for (int step = 1; step <= 8; ++step) {
      const double share = steps_of_growth == 0 ? 1 : std::min(1.0, step / steps_of_growth);
      const double beta3 = std::exp(
          std::log(0.9) * std::log(0.99) / ((1 - share) * std::log(0.99) + share * std::log(0.9)));
      const at::Tensor g = gradient_of(step).to(at::kDouble) * 0.5;
      m = 0.9 * m + 0.1 * g;
      s = beta3 * s + (1 - beta3) * g;
      v = 0.999 * v + 0.001 * g.square();
      const at::Tensor direction = (m / (1 - std::pow(0.9, step)) + 4 * share * s) /
                                   ((v / (1 - std::pow(0.999, step))).sqrt() + 1e-8);
      w = w - rate_of(step) * (direction + kDecay * w);
    }
    train(*optimizer, 1, 8);
    numbers::expect_values(shard.parameter.to(at::kDouble), w, "ademamix");
  }
}

TEST(AdEMAMix, LetsTheSlowAveragesHalfLifeGrowLinearly) {
  const AdEMAMixOptions options{.beta3 = 0.9999, .alpha = 5, .t_alpha = 100, .t_beta3 = 100};
  const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta); };
  EXPECT_DOUBLE_EQ(ademamix_alpha(options, 50), 2.5);
  EXPECT_DOUBLE_EQ(ademamix_alpha(options, 500), 5);
  EXPECT_DOUBLE_EQ(ademamix_beta3(options, 0.9, 100), 0.9999);
  EXPECT_NEAR(
      half_life(ademamix_beta3(options, 0.9, 50)),
      0.5 * half_life(0.9) + 0.5 * half_life(0.9999),
      1e-6);
  EXPECT_THROW(make_optimizer({.optim = "ademamix", .ademamix = {.beta3 = 1}}), Error);
}

}  // namespace averaging_test
}  // namespace lockstep::optim
