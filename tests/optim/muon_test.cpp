// Muon compared with its formulas in float64.
#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "numbers.h"

namespace lockstep::optim {
namespace muon_test {

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator);
}

/// The paper's iteration in float64.
at::Tensor plain_orthogonal(const at::Tensor& matrix, int64_t steps) {
  at::Tensor x = matrix.to(at::kDouble);
  x = x / x.norm();
  for (int64_t step = 0; step < steps; ++step) {
    x = 3.4445 * x - 4.7750 * x.mm(x.t()).mm(x) + 2.0315 * x.mm(x.t()).mm(x).mm(x.t()).mm(x);
  }
  return x;
}

TEST(Muon, IteratesAsItsPaperInFloat64) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{31, 31}, {13, 47}, {53, 7}, {1, 9}, {9, 1}, {1, 1}}) {
    const at::Tensor x = random(shape, 3) * 1e-3;
    for (const int64_t steps : {1, 5}) {
      numbers::expect_values(
          orthogonalised(x, steps).to(at::kDouble),
          plain_orthogonal(x, steps),
          fmt::format("{} by {}, {} steps", shape[0], shape[1], steps));
    }
  }
}

// Several panels of the symmetric products with a remainder; fewer rows than a kernel block; tall
// matrices.
TEST(Muon, IteratesInBfloat16AsInFloat64) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{32, 32}, {31, 64}, {33, 47}, {100, 130}, {300, 129}, {577, 640}}) {
    const at::Tensor x = random(shape, 5).to(at::kBFloat16);
    numbers::expect_values(
        orthogonalised(x, 5).to(at::kDouble),
        plain_orthogonal(x, 5),
        fmt::format("{} by {}", shape[0], shape[1]),
        3e-2);
  }
}

TEST(Muon, GivesSingularValuesNearOneAndZerosForZeros) {
  const at::Tensor x = orthogonalised(random({40, 24}, 1), 5);
  const at::Tensor values = std::get<1>(at::linalg_svd(x, false));
  EXPECT_GT(values.min().item<float>(), 0.6);
  EXPECT_LT(values.max().item<float>(), 1.3);
  EXPECT_TRUE(orthogonalised(at::zeros({3, 5}), 5).eq(0).all().item<bool>());
  const at::Tensor large = random({40, 24}, 1) * 1e4;  // its squares overflow float16
  EXPECT_EQ(orthogonalised(large.to(at::kHalf), 5).scalar_type(), at::kFloat);
  const at::Tensor low = orthogonalised(large.to(at::kBFloat16), 5);
  EXPECT_EQ(low.scalar_type(), at::kBFloat16);
  // Rounding errors of 2^-9 accumulate over five steps.
  numbers::expect_values(low.to(at::kFloat), x, "in bfloat16", 3e-2);
}

OptimizerOptions options_of(const MuonOptions& muon) {
  OptimizerOptions options;
  options.optim = "muon";
  options.weight_decay = 0.1;
  options.muon = muon;
  return options;
}

constexpr double kRate = 1e-2, kFactor = 3, kScale = 0.5;

/// A bias of 5 elements, followed by a matrix.
Shard shard_of(const std::vector<int64_t>& shape, at::ScalarType type = at::kFloat) {
  const int64_t count = shape[0] * shape[1];
  Shard shard{.name = "unit"};
  shard.master = random({5 + count}, 1);
  shard.parameter = type == at::kFloat ? shard.master : shard.master.to(type);
  shard.gradient = at::empty({5 + count}, type);
  shard.layout = {
      {.parameter = "bias", .shape = {5}, .count = 5, .rule = {.weight_decay = 0}},
      {.parameter = "matrix",
       .shape = shape,
       .offset = 5,
       .count = count,
       .rule = {.whole_matrix = true, .learning_rate = kFactor}}};
  return shard;
}

TEST(Muon, FollowsItsFormulas) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{7, 19}, {23, 5}}) {
    for (const MuonOptions& muon :
         {MuonOptions{},
          MuonOptions{
              .momentum = 0.8,
              .nesterov = false,
              .ns_steps = 3,
              .adjust_lr_fn = "match_rms_adamw"}}) {
      const Shard shard = shard_of(shape);
      const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
      const double adjust = muon.adjust_lr_fn == "original"
                                ? std::sqrt(std::max(1.0, rows / columns))
                                : 0.2 * std::sqrt(std::max(rows, columns));
      at::Tensor w = shard.parameter.narrow(0, 5, shape[0] * shape[1]).view(shape).to(at::kDouble);
      at::Tensor bias = shard.parameter.narrow(0, 0, 5).to(at::kDouble);
      at::Tensor m = at::zeros(shape, at::kDouble), first = at::zeros({5}, at::kDouble),
                 second = at::zeros({5}, at::kDouble);
      const auto optimizer = make_optimizer(options_of(muon));
      optimizer->add(shard);
      for (int step = 1; step <= 4; ++step) {
        shard.gradient.copy_(random({shard.gradient.numel()}, 10 + static_cast<uint64_t>(step)));
        const at::Tensor g = shard.gradient.to(at::kDouble) * kScale;
        const at::Tensor of_matrix = g.narrow(0, 5, shape[0] * shape[1]).view(shape);
        m = muon.momentum * m + (1 - muon.momentum) * of_matrix;
        const at::Tensor ahead =
            muon.nesterov ? muon.momentum * m + (1 - muon.momentum) * of_matrix : m;
        w = w * (1 - kRate * kFactor * 0.1) -
            kRate * kFactor * adjust * plain_orthogonal(ahead, muon.ns_steps);
        const at::Tensor of_bias = g.narrow(0, 0, 5);
        first = 0.9 * first + 0.1 * of_bias;
        second = 0.999 * second + 0.001 * of_bias.square();
        bias = bias - kRate * (first / (1 - std::pow(0.9, step))) /
                          ((second / (1 - std::pow(0.999, step))).sqrt() + 1e-8);
        optimizer->step(kRate, kScale);
      }
      numbers::expect_values(
          shard.parameter.to(at::kDouble), at::cat({bias, w.flatten()}), muon.adjust_lr_fn);
    }
  }
}

TEST(Muon, RoundsWhatItsMastersBecame) {
  const Shard shard = shard_of({6, 11}, at::kBFloat16);
  const auto optimizer = make_optimizer(options_of({}));
  optimizer->add(shard);
  shard.gradient.copy_(random({shard.gradient.numel()}, 2));
  const at::Tensor before = shard.master.clone();
  optimizer->step(kRate);
  EXPECT_FALSE(shard.master.eq(before).any().item<bool>());
  EXPECT_TRUE(shard.parameter.equal(shard.master.to(at::kBFloat16)));
}

TEST(Muon, GoesOnFromItsVisitedState) {
  const auto train = [](int64_t steps_before) {
    Shard shard = shard_of({9, 4});
    auto optimizer = make_optimizer(options_of({}));
    optimizer->add(shard);
    for (int64_t step = 0; step < 5; ++step) {
      if (step == steps_before) {
        std::vector<at::Tensor> saved;
        std::vector<std::string> names;
        optimizer->visit_state(0, [&](const StatePiece& piece) {
          saved.push_back(piece.data.clone());
          names.push_back(piece.name + "." + piece.parameter);
        });
        EXPECT_EQ(
            names,
            (std::vector<std::string>{
                "exp_avg.bias", "exp_avg_sq.bias", "momentum_buffer.matrix"}));
        optimizer = make_optimizer(options_of({}));
        optimizer->add(shard);
        optimizer->set_steps(step);
        size_t next = 0;
        optimizer->visit_state(
            0, [&](const StatePiece& piece) { at::Tensor(piece.data).copy_(saved[next++]); });
      }
      shard.gradient.copy_(random({41}, 20 + static_cast<uint64_t>(step)));
      optimizer->step(kRate);
    }
    return shard.parameter;
  };
  EXPECT_TRUE(train(-1).equal(train(3)));
}

TEST(Muon, IsRefusedWithTheReason) {
  const auto message = [](const MuonOptions& muon) {
    try {
      make_optimizer(options_of(muon));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(message({.momentum = 1}), "training.muon_momentum is 1; it must be in [0, 1)");
  EXPECT_EQ(message({.ns_steps = 0}), "training.muon_ns_steps is 0; it must be from 1 to 99");
  EXPECT_NE(message({.adjust_lr_fn = "adam"}).find("'adam'"), std::string::npos);
  // A slice of a matrix, without a function to gather the rest.
  Shard shard = shard_of({6, 4});
  shard.layout[1].shape = {12, 4};
  const auto optimizer = make_optimizer(options_of({}));
  optimizer->add(shard);
  EXPECT_THROW(optimizer->step(kRate), Error);
}

}  // namespace muon_test
}  // namespace lockstep::optim
