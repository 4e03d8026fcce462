// Tests of the bytes and the overlap of expert parallelism.
#include <gtest/gtest.h>

#include "mesh/cut.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace expert_exchange_test {

/// Observes the exchanges of the rank's expert group.
void watch_exchanges(
    ParallelGroups& axes,
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

void forget_watches(ParallelGroups& axes) {
  axes.visit_groups([](comm::Communicator& group) {
    group.set_observer({});
    group.set_finish_observer({});
  });
}

/// Every token is routed to all four experts, so that each rank sends exactly the expected value.
TEST(ExpertBytes, AreOfTheTokensForOtherRanksFourTimes) {
  constexpr int64_t kLayers = 2, kWidth = 20, kExperts = 4;
  const model::ModelConfig config = model::parse_model_config(
      R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 20, "intermediate_size": 13,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
          "num_local_experts": 4, "num_experts_per_tok": 4})",
      "a test");
  for (const auto& [n, halves] : {std::pair(2, false), {4, false}, {2, true}}) {
    comm::run_ranks(n, [&, n = n, halves = halves](comm::Communicator& world) {
      ParallelGroups axes(world, {.data = n});
      Plan plan;
      plan.expert_ranks = n;
      plan.expert_halves = halves;
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
      EXPECT_EQ(exchanges, (halves ? 8 : 4) * kLayers);
      EXPECT_EQ(sent, 4 * kLayers * kExperts * hidden * (n - 1) / n);
    });
  }
}

/// Linear that records when it runs and when the gradient of its output arrives.
struct ToldLinear final : nn::Linear {
  ToldLinear(const nn::Linear& plain, std::string name, std::vector<std::string>& events)
      : Linear(plain),
        name(std::move(name)),
        events(&events) {}
  std::string name;
  std::vector<std::string>* events;
  Tensor forward(const Tensor& x, const nn::ForwardContext& context) const override {
    events->push_back(name);
    const Tensor y = Linear::forward(x, context);
    if (y.requires_grad()) {
      y.register_hook(
          [told = events, what = name](const Tensor&) { told->push_back("d " + what); });
    }
    return y;
  }
};

/// Returns the order of events of this rank in a step: "start" and "end" of exchanges, and the
/// names of the layers with these roles in the rank's first expert.
std::vector<std::string> events_of_a_step(
    const char* json,
    bool halves,
    const std::map<std::string, std::string>& names,
    comm::Communicator& world) {
  const model::ModelConfig config = model::parse_model_config(json, "a test");
  ParallelGroups axes(world, {.data = world.size()});
  std::vector<std::string> events;
  Plan plan;
  plan.expert_ranks = world.size();
  plan.expert_halves = halves;
  const int64_t own = mesh::split_evenly(config.experts.count, world.size(), world.rank()).begin;
  ModelSpec spec{config, at::kFloat, at::kCPU, plan_fill(config)};
  spec.adapt = [&](nn::LanguageModel& model) {
    model.visit_slots(
        nn::each<nn::Linear>([&](const nn::SlotName& name, std::shared_ptr<nn::Linear>& linear) {
          const int64_t expert = model.layers.at(name.prefix).expert;
          if (const auto found = names.find(name.role);
              found != names.end() && (expert < 0 || expert == own)) {
            linear = std::make_shared<ToldLinear>(*linear, found->second, events);
          }
        }));
  };
  const auto model = parallelize(spec, plan, axes);
  watch_exchanges(
      axes,
      [&](const comm::Call&) { events.emplace_back("start"); },
      [&] { events.emplace_back("end"); });
  const std::vector<nn::ForwardInputs> inputs{plan_inputs(config, 0, {0, kPlanRows}, kPlanLength)};
  (void)model->forward_backward(inputs, 100);
  forget_watches(axes);
  return events;
}

/// Events of a model with two mixture layers.
std::vector<std::string> twice(
    const std::vector<std::string>& forward, const std::vector<std::string>& backward) {
  std::vector<std::string> all;
  for (const auto& pass : {forward, forward, backward, backward}) {
    all.insert(all.end(), pass.begin(), pass.end());
  }
  return all;
}

/// The exchange back to the tokens' ranks does not overlap.
TEST(ExpertOverlap, TheSharedExpertComputesWhileTokensAreSent) {
  for (const char* json : {kOddQwen2Moe, kOddGlm4Moe}) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      EXPECT_EQ(
          events_of_a_step(json, false, {{"shared_gate", "shared"}}, world),
          twice(
              {"start", "shared", "end", "start", "end"},
              {"start", "end", "start", "d shared", "end"}));
    });
  }
}

/// The first half computes while the second arrives; the second computes while the first is sent
/// back.
TEST(ExpertOverlap, OneHalfComputesWhileTheOtherIsOnItsWay) {
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const std::map<std::string, std::string> names{
        {"shared_gate", "shared"}, {"expert_down", "expert"}};
    // clang-format off
    EXPECT_EQ(
        events_of_a_step(kOddGlm4Moe, true, names, world),
        twice(
            {"start", "start", "shared", "end", "expert", "start", "end", "expert", "start", "end", "end"},
            {"start", "start", "end", "d expert", "start", "end", "d expert", "start", "d shared", "end", "end"}));
    // clang-format on
  });
}

}  // namespace expert_exchange_test
}  // namespace lockstep::parallel
