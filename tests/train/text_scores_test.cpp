// Texts with common prefixes, read as trees: each token has the same score as in its text alone.
#include "train/tasks/text_scores.h"

#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "nn/testing.h"
#include "numbers.h"

namespace lockstep::train {
namespace text_scores_test {

const std::vector<data::JudgedText> kTexts{
    {{3, 5, 7, 1, 2}, 3},
    {{9, 9, 4}, 1},
    {{3, 5, 7, 1, 4, 6}, 3},
    {{3, 5, 8, 8}, 2},
    {{3, 5, 7, 1, 2}, 3},
    {{2, 6}, 0},
    {{11}, 1},
    {{}, 0}};

TEST(TextScores, AreThoseOfEachTextAlone) {
  const at::NoGradGuard no_gradient;
  int with_trees = 0;
  for (const char* json : nn::kSmallModels) {
    const model::ModelConfig config = model::parse_model_config(json, "test");
    if (config.is_encoder_decoder() || config.bidirectional) {
      continue;
    }
    with_trees += nn::takes_trees(config);
    const auto model = nn::small_model(config);
    const std::vector<std::vector<size_t>> groups = groups_to_read(*model, kTexts);
    EXPECT_EQ(groups.size() < kTexts.size(), nn::takes_trees(config)) << json;
    const std::vector<AnswerScore> scores = score_trees(*model, kTexts, groups, at::kCPU);
    ASSERT_EQ(scores.size(), kTexts.size());
    std::set<size_t> seen;
    auto next = scores.begin();
    for (const std::vector<size_t>& group : groups) {
      for (const size_t i : group) {
        const AnswerScore& score = *next++;
        seen.insert(i);
        const auto& [ids, begin] = kTexts[i];
        const size_t first = std::max<size_t>(1, begin);
        ASSERT_EQ(score.log_likelihoods.size(), ids.size() < first ? 0 : ids.size() - first);
        nn::ForwardInputs alone;
        for (size_t at = first; at < ids.size(); ++at) {
          alone.ids = at::tensor(ids, at::kLong).unsqueeze(0);
          const at::Tensor logits =
              model->logits(alone)[0][static_cast<int64_t>(at) - 1].to(at::kDouble);
          const double wanted = logits.log_softmax(0)[ids[at]].item<double>();
          EXPECT_NEAR(score.log_likelihoods[at - first], wanted, numbers::kRule) << json;
          EXPECT_EQ(score.likeliest[at - first], logits.argmax().item<int64_t>() == ids[at])
              << json;
        }
      }
    }
    EXPECT_EQ(seen.size(), kTexts.size());
  }
  EXPECT_GE(with_trees, 5);
}

TEST(TextScores, OfNothing) {
  const auto model = nn::small_model(model::parse_model_config(nn::kSmallModels[0], "test"));
  EXPECT_TRUE(groups_to_read(*model, {}).empty());
  const std::vector<data::JudgedText> texts{{{4}, 1}};
  const auto scores = score_trees(*model, texts, groups_to_read(*model, texts), at::kCPU);
  EXPECT_EQ(scores.at(0).loss(), 0);
}

}  // namespace text_scores_test
}  // namespace lockstep::train
