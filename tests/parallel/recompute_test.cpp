// Tests of recomputation.
#include "parallel/recompute/recompute.h"

#include <gtest/gtest.h>

#include "parallel/training.h"

namespace lockstep::parallel {
namespace recompute_test {

using namespace testing;

model::ModelConfig deep(const char* activation) {
  return model::parse_model_config(
      fmt::format(
          R"({{"model_type": "gpt2", "vocab_size": 31, "n_embd": 12, "n_layer": 3, "n_head": 2,
               "n_positions": 16, "activation_function": "{}"}})",
          activation),
      "deep");
}

TEST(Recompute, GivesTheSameLossesAndGradientsInEveryStage) {
  for (const model::ModelConfig& config : {tied_config(), untied_config(), deep("relu")}) {
    const Outcome one = train({.config = config, .plan = small_plan()});
    for (const Recompute kind : {Recompute::kSelective, Recompute::kFull}) {
      for (const int64_t every : {1, 2}) {
        for (const auto& [stage, ranks] :
             std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 3}, {3, 3}}) {
          TrainingRun run{config, small_plan(stage, 2), ranks};
          run.plan.recompute = {kind, every};
          expect_equal(
              train(run),
              one,
              1e-5,
              fmt::format(
                  "{} every {}, {}",
                  kind == Recompute::kFull ? "full" : "selective",
                  every,
                  run.name()));
        }
      }
    }
  }
}

TEST(Recompute, RunsABlockTwiceAndTheUnitsAroundItOnce) {
  comm::Communicator alone = comm::Communicator::alone();
  for (const auto& [kind, every, expected] :
       std::vector<std::tuple<Recompute, int64_t, std::vector<int>>>{
           {Recompute::kNone, 1, {1, 1, 1, 1, 1}},
           {Recompute::kFull, 1, {1, 2, 2, 2, 1}},
           {Recompute::kFull, 2, {1, 2, 1, 2, 1}}}) {
    const model::ModelConfig config = deep("gelu");
    auto model = nn::make_model(config, at::kFloat, at::kCPU);
    nn::initialize(*model, 1);
    std::vector<int> runs(5);
    apply_recompute(*model, {kind, every});
    model->around_unit =
        [&, inner = model->around_unit](
            int64_t unit, const nn::Tensors& x, const nn::LanguageModel::UnitBody& body) {
          return inner(unit, x, [&, unit, body](const nn::Tensors& in) {
            ++runs[static_cast<size_t>(unit)];
            return body(in);
          });
        };
    model->loss(rows(config.vocab_size, 0, 0, 1)).backward();
    EXPECT_EQ(runs, expected);
  }
}

TEST(Recompute, LetsGoOfTheActivationsOutput) {
  const model::ModelConfig config = deep("gelu");
  const auto dropped = [&](Recompute kind) {
    auto model = nn::make_model(config, at::kFloat, at::kCPU);
    nn::initialize(*model, 1);
    Tensor inner;  // input of mlp_down in the second layer
    struct Seeing final : nn::Linear {
      Seeing(const nn::Linear& plain, Tensor& seen) : Linear(plain), seen(seen) {}
      Tensor& seen;
      Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
        seen = x;
        return Linear::forward(x, context);
      }
    };
    model->visit_slots(
        nn::each<nn::Linear>([&](const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) {
          if (name.role == "mlp_down" && name.layer == 1) {
            slot = std::make_shared<Seeing>(*slot, inner);
          }
        }));
    apply_recompute(*model, {kind, 1});
    const Tensor loss = model->loss(rows(config.vocab_size, 0, 0, 1));
    const bool is_gone = inner.storage().data() == nullptr;
    loss.backward();
    return is_gone;
  };
  EXPECT_FALSE(dropped(Recompute::kNone));
  EXPECT_TRUE(dropped(Recompute::kSelective));
}

TEST(Recompute, ReachesParametersBehindAnInputWithoutGradient) {
  const Tensor weight = torch::ones({3}).requires_grad_();
  const Tensor x = torch::tensor({1.0, 2.0, 3.0});
  recomputed(x, [&](const Tensor& in) { return (in * weight).square(); }).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), 2 * x * x));
}

}  // namespace recompute_test
}  // namespace lockstep::parallel
