// What spread experts send, against the formula, and what is computed meanwhile.
#include <gtest/gtest.h>

#include "parallel/plans.h"

namespace lockstep::parallel {
namespace expert_exchange_test {

/// Sees the exchanges of the group of experts among the rank's groups.
void watch_exchanges(
    Axes& axes,
    const std::function<void(const comm::Call&)>& began,
    const std::function<void()>& ended) {
  axes.visit_groups([&](comm::Communicator& group) {
    if (group.name().find("experts") != 0) {
      return;
    }
    group.set_observer([began](const comm::Call& call) {
      if (call.operation == "exchange") {
        began(call);
      }
    });
    group.set_finish_observer([ended](const comm::Finished& call) {
      if (call.operation == "exchange") {
        ended();
      }
    });
  });
}

void forget_watches(Axes& axes) {
  axes.visit_groups([](comm::Communicator& group) {
    group.set_observer({});
    group.set_finish_observer({});
  });
}

/// Every token goes to all four experts, so that theory's mean is what each rank sends.
TEST(ExpertBytes, AreOfTheTokensForOtherRanksFourTimes) {
  constexpr int64_t kLayers = 2, kWidth = 20, kExperts = 4;
  const model::ModelConfig config = model::parse_model_config(
      R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 20, "intermediate_size": 13,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
          "num_local_experts": 4, "num_experts_per_tok": 4})",
      "a test");
  for (const int n : {2, 4}) {
    comm::run_ranks(n, [&](comm::Communicator& world) {
      Axes axes(world, {.data = n});
      Plan plan;
      plan.expert_ranks = n;
      const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
      const auto model = parallelize(spec, plan, axes);
      int64_t sent = 0, exchanges = 0;
      watch_exchanges(
          axes,
          [&](const comm::Call& call) {
            sent += call.bytes_sent;
            ++exchanges;
          },
          [] {});
      const std::vector<nn::ForwardInputs> inputs{
          plan_inputs(config, 0, {0, kPlanRows}, kPlanLength)};
      (void)model->forward_backward(inputs, 100);
      forget_watches(axes);
      const int64_t hidden = kPlanRows * kPlanLength * kWidth * 4;
      EXPECT_EQ(exchanges, 4 * kLayers);
      EXPECT_EQ(sent, 4 * kLayers * kExperts * hidden * (n - 1) / n);
    });
  }
}

/// A linear that tells when it runs, and when its output's gradient has come.
struct ToldLinear final : nn::Linear {
  ToldLinear(const nn::Linear& plain, std::vector<std::string>& events)
      : Linear(plain),
        events(&events) {}
  std::vector<std::string>* events;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
    events->emplace_back("shared");
    const Tensor y = Linear::forward(x, context);
    if (y.requires_grad()) {
      y.register_hook([told = events](const Tensor&) { told->emplace_back("shared gradient"); });
    }
    return y;
  }
};

/// In each of the two mixtures; of the way back nothing is hidden.
TEST(ExpertOverlap, TheSharedExpertComputesWhileTokensAreSent) {
  for (const char* json : {kOddQwen2Moe, kOddGlm4Moe}) {
    const model::ModelConfig config = model::parse_model_config(json, "a test");
    comm::run_ranks(2, [&](comm::Communicator& world) {
      Axes axes(world, {.data = 2});
      std::vector<std::string> events;
      Plan plan;
      plan.expert_ranks = 2;
      ModelSpec spec{config, at::kFloat, at::kCPU, plan_fill(config)};
      spec.adapt = [&](nn::LanguageModel& model) {
        model.visit_slots(nn::each<nn::Linear>(
            [&](const nn::SlotName& name, std::shared_ptr<nn::Linear>& linear) {
              if (name.role == "shared_gate") {
                linear = std::make_shared<ToldLinear>(*linear, events);
              }
            }));
      };
      const auto model = parallelize(spec, plan, axes);
      watch_exchanges(
          axes,
          [&](const comm::Call&) { events.emplace_back("start"); },
          [&] { events.emplace_back("end"); });
      const std::vector<nn::ForwardInputs> inputs{
          plan_inputs(config, 0, {0, kPlanRows}, kPlanLength)};
      (void)model->forward_backward(inputs, 100);
      forget_watches(axes);
      const std::vector<std::string> forward{"start", "shared", "end", "start", "end"};
      const std::vector<std::string> backward{"start", "end", "start", "shared gradient", "end"};
      std::vector<std::string> wanted;
      for (const auto& pass : {forward, forward, backward, backward}) {
        wanted.insert(wanted.end(), pass.begin(), pass.end());
      }
      EXPECT_EQ(events, wanted);
    });
  }
}

}  // namespace expert_exchange_test
}  // namespace lockstep::parallel
