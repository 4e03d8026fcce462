// Tests of gradients that are written directly into their flat buffers.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/format.h"
#include "ops/cpu/host_loops.h"
#include "ops/gradient_sink.h"
#include "ops/linear.h"
#include "ops/testing.h"
#include "parallel/data/data_parallel.h"
#include "parallel/training.h"

namespace lockstep::parallel {
namespace gradient_places_test {

using comm::Communicator;

/// A linear with a bias, and a weight that is used twice.
struct Linears {
  Tensor once, bias, twice;

  explicit Linears(at::ScalarType type)
      : once(ops::leaf(ops::random({40, 33}) * 0.2, type)),
        bias(ops::leaf(ops::random({33}, 2), type)),
        twice(ops::leaf(ops::random({33, 33}, 3) * 0.2, type)) {}
  std::vector<ParameterUnit> units() const {
    return {{"first", {{"once", once}, {"bias", bias}}}, {"second", {{"twice", twice}}}};
  }
  /// Loss of a micro-batch.
  Tensor loss(uint64_t rows) const {
    const Tensor x = ops::random({50, 40}, 10 + rows).to(once.scalar_type());
    const Tensor y = ops::linear(x, once, bias, ops::WeightLayout::kInOut);
    const Tensor z = ops::linear(y, twice, std::nullopt, ops::WeightLayout::kOutIn);
    return ops::linear(z, twice, std::nullopt, ops::WeightLayout::kOutIn).sum();
  }
};

struct Types {
  at::ScalarType weights;
  std::optional<at::ScalarType> sums;
};

TEST(GradientPlaces, MicroBatchesAddUpToTheirPlainSum) {
  Communicator alone = Communicator::alone();
  for (const auto& [type, sums] :
       {Types{at::kFloat, {}}, Types{at::kBFloat16, {}}, Types{at::kBFloat16, at::kFloat}}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int micro_batches : {1, 3}) {
        const Linears plain(at::kDouble);
        const Linears ours(type);
        DataParallelOptions options;
        options.zero_stage = stage;
        options.gradient_type = sums;
        DataParallel engine(alone, ours.units(), options);
        for (int step = 0; step < 2; ++step) {  // the second step starts from zero
          engine.begin_step(static_cast<size_t>(micro_batches));
          for (int m = 0; m < micro_batches; ++m) {
            engine.gather_all();
            engine.begin_micro_batch(m + 1 == micro_batches);
            ours.loss(static_cast<uint64_t>(m)).backward();
            engine.end_micro_batch();
          }
          engine.finish();
        }
        for (int m = 0; m < micro_batches; ++m) {
          plain.loss(static_cast<uint64_t>(m)).backward();
        }
        const std::map<std::string, Tensor> wanted{
            {"once", plain.once.grad()},
            {"bias", plain.bias.grad()},
            {"twice", plain.twice.grad()}};
        for (const FlatUnit& flat : engine.flats()) {
          for (const FlatUnit::Entry& entry : flat.entries) {
            numbers::expect_values(
                flat.shard_gradient.narrow(0, entry.offset, entry.count),
                wanted.at(entry.name).flatten(),
                fmt::format("{}, stage {}, {} micro-batches", entry.name, stage, micro_batches),
                type == at::kFloat ? numbers::kRule : 0.03);
          }
        }
      }
    }
  }
}

TEST(GradientPlaces, AreLentOnceAndHoldWhatCameBefore) {
  Communicator alone = Communicator::alone();
  for (const int stage : {0, 1, 2, 3}) {
    const Linears ours(at::kFloat);
    DataParallel engine(alone, ours.units(), {.zero_stage = stage});
    const at::NoGradGuard no_gradient;
    engine.begin_step(1);  // gradients computed in the forward pass need no begin_micro_batch()
    EXPECT_EQ(ops::memory_of_gradient(ours.once).defined(), stage < 2);
    EXPECT_FALSE(ops::memory_of_gradient(ours.once).defined());
    EXPECT_FALSE(ops::memory_of_gradient(at::ones({2})).defined());

    engine.begin_step(2);
    EXPECT_FALSE(ops::memory_of_gradient(ours.once).defined());
    for (const bool is_last : {false, true}) {
      engine.gather_all();
      engine.begin_micro_batch(is_last);
      const bool holds_sum = is_last && stage < 2;
      EXPECT_EQ(ops::memory_of_gradient(ours.bias).defined(), !holds_sum) << stage;
      const ops::GradientPlace place = ops::place_of_gradient(ours.once);
      ASSERT_TRUE(place.memory.defined()) << stage;
      EXPECT_EQ(place.holds_sum, holds_sum) << stage;
      EXPECT_EQ(place.memory.sizes(), ours.once.sizes());
      EXPECT_FALSE(ops::place_of_gradient(ours.once).memory.defined());
      const at::AutoGradMode with_gradients(true);
      EXPECT_FALSE(ops::place_of_gradient(ours.twice).memory.defined());
      ours.loss(0).backward();
      engine.end_micro_batch();
    }
    engine.finish();
  }
}

/// With host kernels, gradients are converted to another accumulation type when they are added; the
/// GPU-style kernels write them in that type.
TEST(GradientPlaces, SumsOfAnotherTypeTakeProductsAlone) {
  Communicator alone = Communicator::alone();
  const Linears ours(at::kBFloat16);
  DataParallel engine(alone, ours.units(), {.gradient_type = at::kFloat});
  const at::NoGradGuard no_gradient;
  engine.begin_step(1);
  engine.begin_micro_batch(true);
  EXPECT_FALSE(ops::memory_of_gradient(ours.once).defined());
  const Tensor memory = ops::place_of_gradient(ours.once).memory;
  EXPECT_EQ(memory.defined(), !ops::has_host_loops(ours.once));
  EXPECT_TRUE(!memory.defined() || memory.scalar_type() == at::kFloat);
}

TEST(GradientPlaces, HooksOfOthersSeeGradients) {
  Communicator alone = Communicator::alone();
  const Linears hooked(at::kFloat);
  std::vector<Tensor> seen;
  hooked.once.register_hook([&](const Tensor& gradient) { seen.push_back(gradient.clone()); });
  DataParallel engine(alone, hooked.units(), {});
  engine.begin_step(2);
  for (const bool is_last : {false, true}) {
    engine.begin_micro_batch(is_last);
    hooked.loss(0).backward();
    engine.end_micro_batch();
  }
  engine.finish();
  ASSERT_EQ(seen.size(), 2U);
  numbers::expect_values(seen[1], seen[0], "what a hook sees");
  for (const FlatUnit& flat : engine.flats()) {
    for (const FlatUnit::Entry& entry : flat.entries) {
      if (entry.name == "once") {
        const Tensor sum = flat.gradient.narrow(0, entry.offset, entry.count);
        numbers::expect_values(sum, (seen[0] * 2).flatten(), "the sum");
      }
    }
  }
}

/// Records the parameters whose buffers a kernel has acquired.
struct Spy final : ops::GradientSink {
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> inner;
  std::function<void()> lends;
  Spy(const Tensor& parameter, std::function<void()> lends)
      : inner(std::move(torch::autograd::impl::post_acc_grad_hooks(parameter))),
        lends(std::move(lends)) {}
  void operator()(const torch::autograd::Variable& parameter) override { (*inner)(parameter); }
  ops::GradientPlace lend(ops::Makes makes) override {
    ops::GradientPlace place = dynamic_cast<ops::GradientSink&>(*inner).lend(makes);
    if (place.memory.defined()) {
      lends();
    }
    return place;
  }
};

/// The parameters of every linear, and of the head.
TEST(GradientPlaces, ModelsMakeTheirGradientsThere) {
  for (const bool tied : {true, false}) {
    testing::TrainingRun run{tied ? testing::tied_config() : testing::untied_config()};
    run.plan = testing::small_plan();
    Communicator alone = Communicator::alone();
    const auto model = testing::make_parallel(run, alone);
    std::set<std::string> lent;
    for (const FlatUnit& flat : model->data_parallel().flats()) {
      for (const FlatUnit::Entry& entry : flat.entries) {
        torch::autograd::impl::set_post_acc_grad_hooks(
            entry.parameter,
            std::make_unique<Spy>(entry.parameter, [&, name = entry.name] { lent.insert(name); }));
      }
    }
    (void)testing::run_step(*model, run, alone, 0);
    EXPECT_TRUE(lent.contains(tied ? "transformer.wte.weight" : "lm_head.weight"));
    for (const auto& [prefix, layer] : model->model().layers) {
      for (const model::ParameterSpec& parameter : layer.parameters) {
        if (layer.kind == model::LayerKind::kLinear) {
          EXPECT_TRUE(lent.contains(parameter.name)) << parameter.name;
        }
      }
    }
    EXPECT_GE(lent.size(), 8U);
  }
}

}  // namespace gradient_places_test
}  // namespace lockstep::parallel
