// Tests of evaluation and model inputs.
#include "train/evaluate.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "train/batches/inputs.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace evaluate_test {

TEST(Inputs, CountTheLabelsThatArePredicted) {
  data::MicroBatch batch;
  batch.rows = 2;
  batch.length = 3;
  batch.ids = {1, 2, 3, 4, 5, 6};
  batch.labels = {1, 2, -100, -100, -100, 6};
  batch.samples = {7, 8};
  const nn::ForwardInputs inputs = to_inputs(batch);
  EXPECT_EQ(
      inputs.targets.counts.sum().item<int64_t>(), 2);  // the first token of a row is not predicted
  EXPECT_EQ(inputs.ids[1][0].item<int64_t>(), 4);
  EXPECT_EQ(inputs.samples[1].item<int64_t>(), 8);
}

TEST(Evaluation, FindsAMetricByItsName) {
  const Evaluation result{.report = {2, {{"perplexity", 7.5}, {"token_accuracy", 0.25}}}};
  EXPECT_EQ(result.metric("loss"), 2);
  EXPECT_EQ(result.metric("perplexity"), 7.5);
  EXPECT_EQ(result.metric("token_accuracy"), 0.25);
  EXPECT_TRUE(std::isnan(result.metric("accuracy")));
}

TEST(OnFirstRank, GivesEveryRankTheTextOrTheFailure) {
  comm::run_ranks(3, [](comm::Communicator& group) {
    EXPECT_EQ(
        on_first_rank(group, [&] { return "from " + std::to_string(group.rank()); }), "from 0");
    try {
      on_first_rank(group, []() -> std::string {
        throw Error(ErrorKind::kData, "no such file", "look again");
      });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(error.what()).find("no such file"), std::string::npos);
    }
  });
}

}  // namespace evaluate_test
}  // namespace lockstep::train
