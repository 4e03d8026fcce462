// A loss that is averaged over ranks (LossMean::kOfRanks), under every axis.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/plans.h"

namespace lockstep::parallel {
namespace loss_mean_test {

struct Step {
  double loss = 0, norm = 0;
  std::map<std::string, Tensor> gradients;
};

/// Rows of plan_inputs, of which the last has no targets if `masks` is set.
nn::ForwardInputs rows_of(const model::ModelConfig& config, mesh::Range rows, bool masks) {
  nn::ForwardInputs inputs = plan_inputs(config, 0, rows, kPlanLength);
  if (masks && rows.end == kPlanRows) {
    inputs.targets.tokens[rows.size() - 1].fill_(ops::kIgnoredTarget);
    inputs.targets.counts[rows.size() - 1].fill_(0);
  }
  return inputs;
}

/// Runs the passes of one step over `rows` under a plan. `divisor_of` returns the divisor of a data
/// coordinate.
Step run(
    const PlanCase& plan,
    const std::string& json,
    mesh::Range rows,
    bool masks,
    const std::function<double(int64_t)>& divisor_of) {
  const model::ModelConfig config = model::parse_model_config(json, "a test");
  Step step;
  std::mutex mutex;
  comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, plan.mesh);
    Plan options = plan.plan;
    options.accumulation_steps = plan.accumulation;
    options.sequence_length = kPlanLength;
    const auto model =
        parallelize({config, at::kFloat, at::kCPU, plan_fill(config)}, options, axes);
    std::vector<nn::ForwardInputs> inputs;
    for (int64_t m = 0; m < plan.accumulation; ++m) {
      const mesh::Range own = mesh::split_evenly(
          rows.size(),
          plan.mesh.data * plan.accumulation,
          axes.coordinate().data * plan.accumulation + m);
      inputs.push_back(rows_of(config, {rows.begin + own.begin, rows.begin + own.end}, masks));
    }
    const StepResult result = model->forward_backward(inputs, divisor_of(axes.coordinate().data));
    const std::scoped_lock lock(mutex);
    if (world.rank() == 0) {
      step.loss = result.loss;
      step.norm = result.gradient_norm;
    }
    model->visit_gradients(
        [&](const StateSlice& slice) { add_to_whole(slice, step.gradients[slice.name]); });
  });
  return step;
}

/// Compares a plan with the mean of one-rank runs over the rows of each data coordinate.
void expect_mean_of_ranks(const PlanCase& given, const std::string& json, bool masks = false) {
  PlanCase plan = given;
  plan.plan.loss_mean = LossMean::kOfRanks;
  const model::ModelConfig config = model::parse_model_config(json, "a test");
  const auto rows_of_rank = [&](int64_t rank) {
    const int64_t first = rank * plan.accumulation, parts = plan.mesh.data * plan.accumulation;
    return mesh::Range{
        mesh::split_evenly(kPlanRows, parts, first).begin,
        mesh::split_evenly(kPlanRows, parts, first + plan.accumulation - 1).end};
  };
  const auto targets_of = [&](int64_t rank) {
    return rows_of(config, rows_of_rank(rank), masks).targets.counts.sum().item<double>();
  };
  double ranks = 0;
  for (int64_t rank = 0; rank < plan.mesh.data; ++rank) {
    ranks += targets_of(rank) > 0 ? 1 : 0;
  }
  EXPECT_EQ(ranks, masks ? plan.mesh.data - 1 : plan.mesh.data);
  Step wanted;
  double squares = 0;
  for (int64_t rank = 0; rank < plan.mesh.data; ++rank) {
    if (targets_of(rank) == 0) {
      continue;
    }
    const Step own =
        run({}, json, rows_of_rank(rank), masks, [&](int64_t) { return targets_of(rank); });
    wanted.loss += own.loss / ranks;
    for (const auto& [name, gradient] : own.gradients) {
      Tensor& sum = wanted.gradients[name];
      sum = sum.defined() ? sum + gradient / ranks : gradient / ranks;
    }
  }
  for (const auto& [name, gradient] : wanted.gradients) {
    squares += gradient.square().sum().item<double>();
  }
  const Step found = run(
      plan, json, {0, kPlanRows}, masks, [&](int64_t rank) { return targets_of(rank) * ranks; });
  const std::string name = plan_name(plan);
  numbers::expect_loss(found.loss, wanted.loss, name);
  EXPECT_NEAR(found.norm, std::sqrt(squares), numbers::kRule * std::sqrt(squares)) << name;
  numbers::expect_gradients(found.gradients, wanted.gradients, name);
  // The rows have different numbers of targets, so the mean over all targets differs.
  const Step of_step = run(given, json, {0, kPlanRows}, masks, [&](int64_t) {
    return rows_of(config, {0, kPlanRows}, masks).targets.counts.sum().item<double>();
  });
  EXPECT_EQ(std::abs(of_step.loss - wanted.loss) > 1e-4, ranks > 1) << name;
}

TEST(LossMean, OfRanksIsTheMeanOfTheirMeans) {
  const std::vector<PlanCase> table{
      {{.data = 2}, 1},
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 3}, 1, {.zero_stage = 2}},
      {{.data = 2}, 1, {.zero_stage = 3}},
      {{.data = 2, .tensor = 2}, 1, {.sequence_sharding = SequenceSharding::kShards}},
      {{.data = 2, .context = 2}, 2, {.zero_stage = 1}},
      {{.pipeline = 2, .data = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 1, {.zero_stage = 1}},
      {{.tensor = 2}, 1},
  };
  for (const char* json : {kOddGpt2, kOddLlama}) {
    for (const PlanCase& plan : table) {
      expect_mean_of_ranks(plan, json);
    }
  }
  expect_mean_of_ranks(table[0], kOddT5);
}

/// At the end of an epoch there can be fewer rows than ranks.
TEST(LossMean, RanksWithoutTargetsAreNotCounted) {
  expect_mean_of_ranks({{.data = 3}, 1, {.zero_stage = 1}}, kOddLlama, true);
}

/// The router losses keep their weight.
TEST(LossMean, RouterLossesAreMeansOverTheStep) {
  PlanCase plan{{.data = 2}, 1};
  plan.plan.router_losses = {nn::Balance::kRows, 10.0, 0.1};
  const auto targets = [](const model::ModelConfig& config, mesh::Range rows) {
    return rows_of(config, rows, false).targets.counts.sum().item<double>();
  };
  const model::ModelConfig config = model::parse_model_config(kOddMixtral, "a test");
  const auto gradient_of_routers = [&](LossMean mean) {
    plan.plan.loss_mean = mean;
    return run(plan,
               kOddMixtral,
               {0, kPlanRows},
               false,
               [&](int64_t rank) {
                 return mean == LossMean::kOfStep
                            ? targets(config, {0, kPlanRows})
                            : 2 * targets(config, mesh::split_evenly(kPlanRows, 2, rank));
               })
        .gradients.at("model.layers.0.block_sparse_moe.gate.weight");
  };
  const Tensor of_step = gradient_of_routers(LossMean::kOfStep);
  const Tensor of_ranks = gradient_of_routers(LossMean::kOfRanks);
  EXPECT_FALSE(at::equal(of_step, of_ranks));
  // With this coefficient, most of the gradient is that of the router losses.
  const double scale = of_step.abs().max().item<double>();
  EXPECT_LT((of_step - of_ranks).abs().max().item<double>(), 0.1 * scale);
}

}  // namespace loss_mean_test
}  // namespace lockstep::parallel
