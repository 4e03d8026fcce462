// Optimizers: updates, saved state, stochastic rounding and rejected options.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "numbers.h"
#include "optim/dynamic_map.h"
#include "optim/gradient_norm.h"

namespace lockstep::optim {
namespace optimizer_test {

at::Tensor random(int64_t count, uint64_t seed, at::ScalarType type = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({count}, generator).to(type);
}

/// Elements with weight decay, followed by elements without.
std::vector<Segment> decayed_first(int64_t decayed, int64_t count) {
  return {
      {.parameter = "weight", .shape = {decayed}, .count = decayed},
      {.parameter = "bias",
       .shape = {count - decayed},
       .offset = decayed,
       .count = count - decayed,
       .rule = {.weight_decay = 0}}};
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
  // With a zero gradient only weight decay changes a weight.
  OptimizerOptions options;
  options.weight_decay = 0.5;
  const auto optimizer = make_optimizer(options);
  const at::Tensor weights = at::ones({5});
  optimizer->add(
      {.name = "block",
       .parameter = weights,
       .gradient = at::zeros({5}),
       .layout = decayed_first(3, 5)});
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
           .layout = decayed_first(std::clamp<int64_t>(700 - first, 0, size), size)});
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
  const Shard shard{.name = "head", .parameter = weights, .master = master, .gradient = gradient};
  const auto first = make_optimizer(options);
  first->add(shard);
  first->step(1e-2);
  first->step(1e-2);

  // Saved by name and loaded into another optimizer.
  Shard copy = shard;
  copy.parameter = weights.clone();
  copy.master = master.clone();
  const auto second = make_optimizer(options);
  second->add(copy);
  second->set_steps(first->steps());
  std::vector<std::pair<std::string, at::Tensor>> saved;
  first->visit_state(0, [&](const StatePiece& piece) {
    EXPECT_EQ(piece.data.numel(), 17);
    saved.emplace_back(piece.name + "." + piece.parameter, piece.data.clone());
  });
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0].first, "exp_avg.head");
  EXPECT_EQ(saved[1].first, "exp_avg_sq.head");
  size_t next = 0;
  second->visit_state(0, [&](const StatePiece& piece) {
    EXPECT_EQ(piece.name + "." + piece.parameter, saved[next].first);
    at::Tensor(piece.data).copy_(saved[next++].second);
  });
  first->step(1e-2);
  second->step(1e-2);
  EXPECT_TRUE(at::equal(master, copy.master));
  EXPECT_TRUE(at::equal(weights, copy.parameter));
  EXPECT_TRUE(at::equal(weights, master.to(at::kBFloat16)));
}

/// Applies `steps` updates to one matrix and one vector, concatenated and split into `shards` equal
/// shards.
at::Tensor trained(
    const std::string& optim, int64_t shards, at::ScalarType type, int64_t steps = 5) {
  const int64_t rows = 96, columns = 64, count = rows * columns + 512;
  OptimizerOptions options;
  options.optim = optim;
  options.weight_decay = 0.1;
  const at::Tensor start = random(count, 1);
  const at::Tensor master = start.clone(), low = master.to(type);
  const int64_t part = count / shards;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  const at::Tensor gradient = at::empty({count});
  for (int64_t i = 0; i < shards; ++i) {
    const int64_t begin = i * part, cut = rows * columns;
    const auto segment =
        [&](const char* name, std::vector<int64_t> shape, int64_t at, int64_t size) {
          const int64_t first = std::clamp(begin, at, at + size);
          const int64_t last = std::clamp(begin + part, first, at + size);
          return Segment{name, std::move(shape), first - at, first - begin, last - first};
        };
    Shard shard{.name = "unit"};
    shard.parameter = (type == at::kFloat ? master : low).narrow(0, begin, part);
    shard.master = type == at::kFloat ? shard.parameter : master.narrow(0, begin, part);
    shard.gradient = gradient.narrow(0, begin, part);
    shard.layout = {segment("matrix", {rows, columns}, 0, cut), segment("vector", {512}, cut, 512)};
    shard.layout.back().rule.weight_decay = 0;
    for (Segment& s : shard.layout) {
      s.begin = s.count == 0 ? 0 : s.begin;
      s.offset = s.count == 0 ? 0 : s.offset;
    }
    optimizers.push_back(make_optimizer(options));
    optimizers.back()->add(std::move(shard));
  }
  for (int64_t step = 0; step < steps; ++step) {
    gradient.copy_(random(count, 10 + static_cast<uint64_t>(step)));
    for (auto& optimizer : optimizers) {
      optimizer->step(1e-2, 0.5);
    }
  }
  return type == at::kFloat ? master : low.to(at::kFloat);
}

TEST(Optimizer, EveryElementwiseOneGivesTheSameWhateverTheShards) {
  for (const char* optim :
       {"adamw", "sgd", "lion_32bit", "adamw_8bit", "ademamix", "schedule_free_adamw"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor whole = trained(optim, 1, type);
      EXPECT_TRUE(at::equal(trained(optim, 2, type), whole)) << optim;
      EXPECT_TRUE(whole.isfinite().all().item<bool>()) << optim;
    }
  }
}

TEST(Optimizer, SgdAndLionFollowTheirFormulas) {
  const at::Tensor start = random(6656, 1);
  const auto decay = at::cat({at::full({6144}, 0.1), at::zeros({512})});
  at::Tensor sgd = start.clone(), lion = start.clone(), m = at::zeros({6656});
  for (uint64_t step = 0; step < 5; ++step) {
    const at::Tensor g = random(6656, 10 + step) * 0.5;
    sgd = sgd - 1e-2 * (g + decay * sgd);
    lion = lion - 1e-2 * decay * lion - 1e-2 * (0.9 * m + (1 - 0.9) * g).sign();
    m = 0.999 * m + (1 - 0.999) * g;
  }
  numbers::expect_values(trained("sgd", 1, at::kFloat), sgd, "sgd");
  numbers::expect_values(trained("lion_32bit", 1, at::kFloat), lion, "lion");
}

TEST(Optimizer, AdafactorFollowsItsFormulas) {
  const at::Tensor start = random(6656, 1);
  at::Tensor matrix = start.narrow(0, 0, 6144).view({96, 64}).clone();
  at::Tensor vector = start.narrow(0, 6144, 512).clone();
  at::Tensor row = at::zeros({96}), column = at::zeros({64}), square = at::zeros({512});
  const auto clipped = [](const at::Tensor& update) {
    return update / std::max(1.0, update.square().mean().sqrt().item<double>());
  };
  for (int step = 1; step <= 5; ++step) {
    const at::Tensor g = random(6656, 9 + static_cast<uint64_t>(step)) * 0.5;
    const at::Tensor of_matrix = g.narrow(0, 0, 6144).view({96, 64}),
                     of_vector = g.narrow(0, 6144, 512);
    const double beta = 1 - std::pow(step, -0.8);
    row = beta * row + (1 - beta) * of_matrix.square().mean(1);
    column = beta * column + (1 - beta) * of_matrix.square().mean(0);
    square = beta * square + (1 - beta) * of_vector.square();
    const at::Tensor second = row.unsqueeze(1) * column.unsqueeze(0) / row.mean();
    matrix = matrix * (1 - 1e-2 * 0.1) - 1e-2 * clipped(of_matrix / second.sqrt());
    vector = vector - 1e-2 * clipped(of_vector / square.sqrt());
  }
  const at::Tensor expected = at::cat({matrix.flatten(), vector});
  numbers::expect_values(trained("adafactor", 1, at::kFloat), expected, "adafactor");
}

/// Blocks of three rows, of two columns, and a vector, with shards that split them.
TEST(Optimizer, AdamMiniFollowsItsFormulas) {
  constexpr int64_t kRows = 6, kColumns = 4, kVector = 5, kMatrix = kRows * kColumns;
  for (const bool by_columns : {false, true}) {
    const int64_t block = by_columns ? 2 : 3;
    const at::Tensor weights = random(kMatrix + kVector, 1);
    at::Tensor matrix = weights.narrow(0, 0, kMatrix).view({kRows, kColumns}).clone();
    at::Tensor vector = weights.narrow(0, kMatrix, kVector).clone();
    at::Tensor mean = at::zeros_like(matrix), of_vector = at::zeros_like(vector);
    at::Tensor squares = at::zeros({2});
    double square = 0;
    OptimizerOptions options;
    options.optim = "adam_mini";
    options.weight_decay = 0.1;
    const auto optimizer = make_optimizer(options);
    const UpdateRule rule{.block = block, .block_by_columns = by_columns};
    optimizer->add(
        {.name = "all",
         .parameter = weights,
         .layout = {
             {.parameter = "w", .shape = {kRows, kColumns}, .count = kMatrix, .rule = rule},
             {.parameter = "b", .shape = {kVector}, .offset = kMatrix, .count = kVector}}});
    for (int step = 1; step <= 4; ++step) {
      const at::Tensor g = random(kMatrix + kVector, 7 + static_cast<uint64_t>(step));
      const at::Tensor of_matrix = g.narrow(0, 0, kMatrix).view({kRows, kColumns}) * 0.5;
      const at::Tensor last = g.narrow(0, kMatrix, kVector) * 0.5;
      const at::Tensor blocks =
          by_columns ? of_matrix.t().reshape({2, -1}) : of_matrix.view({2, -1});
      mean = 0.9 * mean + 0.1 * of_matrix;
      of_vector = 0.9 * of_vector + 0.1 * last;
      squares = 0.999 * squares + 0.001 * blocks.square().mean(1);
      square = 0.999 * square + 0.001 * last.square().mean().item<double>();
      const double c1 = 1 - std::pow(0.9, step), c2 = 1 - std::pow(0.999, step);
      const at::Tensor each = squares.repeat_interleave(block);
      const at::Tensor of_each = by_columns ? each.unsqueeze(0) : each.unsqueeze(1);
      matrix = matrix * (1 - 1e-2 * 0.1) - 1e-2 * (mean / c1) / ((of_each / c2).sqrt() + 1e-8);
      vector =
          vector * (1 - 1e-2 * 0.1) - 1e-2 * (of_vector / c1) / (std::sqrt(square / c2) + 1e-8);
      optimizer->shard(0).gradient = g;
      optimizer->step(1e-2, 0.5);
    }
    numbers::expect_values(weights, at::cat({matrix.flatten(), vector}), "adam_mini");
  }
}

TEST(Optimizer, TheEightBitAdamWStaysNearTheWholeOne) {
  const at::Tensor exact = trained("adamw", 1, at::kFloat, 20), start = random(6656, 1);
  const at::Tensor near = trained("adamw_8bit", 1, at::kFloat, 20);
  const double moved = (exact - start).abs().mean().item<double>();
  EXPECT_LT((near - exact).abs().mean().item<double>(), 0.1 * moved);
  // This parameter is too small for 8-bit moments and uses float32.
  EXPECT_TRUE(at::equal(near.narrow(0, 6144, 512), exact.narrow(0, 6144, 512)));
  EXPECT_FALSE(at::equal(near, exact));
}

TEST(DynamicMap, HasTheKnownValuesAndFindsTheNearest) {
  const DynamicMap& map = DynamicMap::of_signed();
  const auto& values = map.values();
  EXPECT_EQ(std::count_if(values.begin(), values.end(), [](float v) { return v < 0; }), 127);
  EXPECT_EQ(values[127], 0);
  EXPECT_NEAR(values[128], 5.5e-7, 1e-12);
  EXPECT_NEAR(values[253], 0.97890627, 1e-7);
  EXPECT_NEAR(values[254], 0.99296874, 1e-7);
  EXPECT_EQ(values[255], 1);
  const auto& of_squares = DynamicMap::of_unsigned().values();
  EXPECT_EQ(of_squares[0], 0);
  EXPECT_NEAR(of_squares[1], 3.25e-7, 1e-12);
  EXPECT_NEAR(of_squares[253], 0.9894531, 1e-7);
  EXPECT_NEAR(of_squares[254], 0.9964844, 1e-7);
  for (const DynamicMap* each : {&map, &DynamicMap::of_unsigned()}) {
    const at::Tensor xs =
        at::cat({random(20000, 3).clamp(-1, 1), random(2000, 4) * 1e-6, at::zeros({1})});
    for (int64_t i = 0; i < xs.numel(); ++i) {
      const float x = xs.data_ptr<float>()[i];
      const float found = each->values()[each->nearest(x)];
      for (const float value : each->values()) {
        ASSERT_LE(std::abs(x - found), std::abs(x - value)) << x;
      }
    }
  }
}

TEST(Optimizer, TellsEveryProblemOfItsOptions) {
  OptimizerOptions options;
  options.optim = "adamw_torch_fussed";
  options.adam_beta2 = 1.0;
  options.weight_decay = std::nan("");
  EXPECT_EQ(
      problem_of(options),
      "training.optim is 'adamw_torch_fussed', which is not one of adafactor, adam_mini, adamw, "
      "adamw_8bit, adamw_bnb_8bit, adamw_torch, adamw_torch_fused, ademamix, lion_32bit, muon, "
      "paged_adamw_8bit, schedule_free_adamw, sgd. Did you mean 'adamw_torch_fused'?\n"
      "training.adam_beta2 is 1; it must be in [0, 1)\n"
      "training.weight_decay is nan; it must not be negative");
}

TEST(Optimizer, RefusesShardsThatDoNotGoTogether) {
  const auto optimizer = make_optimizer({});
  EXPECT_THROW(optimizer->add({.name = "a"}), Error);
  EXPECT_THROW(
      optimizer->add({.name = "a", .parameter = at::ones({2}), .layout = decayed_first(2, 3)}),
      Error);
  EXPECT_THROW(optimizer->add({.name = "a", .parameter = at::ones({2}, at::kBFloat16)}), Error);
  EXPECT_THROW(
      optimizer->add({.name = "a", .parameter = at::ones({2}), .master = at::ones({3})}), Error);
  optimizer->add({.name = "a", .parameter = at::ones({2})});
  EXPECT_THROW(optimizer->step(0.1), Error);  // no gradient
  optimizer->shard(0).gradient = at::ones({3});
  EXPECT_THROW(optimizer->step(0.1), Error);  // gradient of another size
}

TEST(GradientNorm, EqualsTheSumOfSquaresInFloat64) {
  for (const int64_t count : {0, 1, 2, 31, 32, 33, 1000, 65535, 65536, 65537, 300001}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
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
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
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
  EXPECT_THROW(squared_norm(at::ones({4}, at::kHalf)), Error);
}

TEST(GradientNorm, Clips) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
}

}  // namespace optimizer_test
}  // namespace lockstep::optim
