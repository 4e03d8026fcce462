// Tests the roofline budget of a layer.
#include "plan/cost/layer_budget.h"

#include <iostream>

#include <gtest/gtest.h>

#include "model/model_config.h"

namespace lockstep::plan {
namespace layer_budget_test {

/// Llama 2 7B, one sequence of 4,096 tokens at a time.
Job job_of_7b(int64_t micro_batches = 1) {
  Job job;
  job.model = model::preset("llama2-7b");
  job.sequence = 4096;
  job.micro_batch = 2;
  job.global_batch = 2 * micro_batches;
  return job;
}

TEST(LayerBudget, CountsWhatProductsComputeAndAllThatIsMoved) {
  const Job job = job_of_7b();
  ASSERT_TRUE(has_layer_budget(job.model));
  const std::vector<BudgetLine> lines = layer_budget(job);
  const double parameters = 4 * 4096.0 * 4096 + 3 * 4096.0 * 11008, tokens = 8192;
  EXPECT_EQ(lines.front().flops, 6 * tokens * parameters);
  int kernels = 0;
  double bytes = 0;
  for (const BudgetLine& line : lines) {
    kernels += line.kernels;
    bytes += line.bytes;
    EXPECT_GT(line.bytes, 0) << line.what;
  }
  EXPECT_LE(kernels, 80);
  EXPECT_GT(bytes, 30 * parameters);  // only the update
}

TEST(LayerBudget, AStepIsPredictedForEachDevice) {
  const Job job = job_of_7b(4);
  std::cout << budget_table(job);
  const RooflineStep h100 = roofline_step(find_device("h100-80gb"), job);
  const RooflineStep h200 = roofline_step(find_device("h200"), job);
  const RooflineStep b200 = roofline_step(find_device("b200"), job);
  EXPECT_GT(h200.utilisation, 0.65);  // the target utilization is reachable
  EXPECT_LT(h200.utilisation, 1);
  EXPECT_LT(h200.seconds, h100.seconds);  // same rate, different bandwidth
  EXPECT_LT(b200.seconds, h200.seconds);
  EXPECT_NEAR(h100.tokens_per_second * h100.seconds, 4 * 2 * 4096, 1e-3);
  // The update runs once per step.
  EXPECT_LT(h100.seconds, 4 * roofline_step(find_device("h100-80gb"), job_of_7b(1)).seconds);
}

TEST(LayerBudget, IsOfBlocksOfItsSortAlone) {
  Job job = job_of_7b();
  job.model = model::preset("gpt2");
  EXPECT_FALSE(has_layer_budget(job.model));
  EXPECT_EQ(budget_table(job), "");
}

}  // namespace layer_budget_test
}  // namespace lockstep::plan
