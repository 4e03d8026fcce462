// Classifier heads: targets, scores and gradients.
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/generate.h"
#include "nn/testing.h"
#include "numbers.h"

namespace lockstep::nn {
namespace classifier_test {

model::ModelConfig with_classes(const char* json) {
  return model::with_head(
      model::parse_model_config(json, "test"),
      {model::HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}});
}

TEST(Classifier, ReadsEachRowAtItsLastToken) {
  for (const int family : {0, 1, 3, 5}) {
    const model::ModelConfig config = with_classes(kSmallModels[family]);
    const auto model = small_model(config);
    ForwardInputs inputs = small_inputs(config, 3, 9);
    const Tensor last = at::tensor({8, 2, 5}, at::kLong), classes = at::tensor({0, 2, -100});
    inputs.targets = classes_at(last, classes.to(at::kLong), 9);
    const Tensor logits = model->logits(inputs);
    EXPECT_EQ(logits.sizes(), (at::IntArrayRef{3, 9, 3}));
    const Tensor of_rows = at::stack({logits[0][8], logits[1][2]});
    const Tensor wanted =
        at::cross_entropy_loss(of_rows, at::tensor({0, 2}, at::kLong), {}, at::Reduction::Sum);
    EXPECT_NEAR(model->loss(inputs).item<double>(), wanted.item<double>(), 1e-5);
    const Scores scores = model->scores(inputs);
    EXPECT_NEAR(scores.log_likelihoods.sum().item<double>(), -wanted.item<double>(), 1e-5);
    EXPECT_EQ(
        scores.likeliest.sum().item<int64_t>(),
        of_rows.argmax(1).eq(at::tensor({0, 2}, at::kLong)).sum().item<int64_t>());
    inputs.ids[1].narrow(0, 3, 6).fill_(1);  // padding after the last token
    EXPECT_NEAR(model->loss(inputs).item<double>(), wanted.item<double>(), 1e-5);
  }
}

TEST(Classifier, IsTheLastUnitsAlone) {
  const model::ModelConfig config = with_classes(kSmallModels[3]);  // a previously tied embedding
  const auto model = make_model(config, at::kFloat, at::kMeta);
  EXPECT_EQ(model->units().back(), (std::vector<std::string>{"model.norm.weight", "score.weight"}));
  const auto stage = make_model(config, at::kFloat, at::kMeta, {1, -1, false, true});
  EXPECT_EQ(stage->units().back(), model->units().back());
}

TEST(Classifier, GivesNoText) {
  const auto model = small_model(with_classes(kSmallModels[0]));
  EXPECT_THROW(generate(*model, {1, 2}, {}), Error);
}

}  // namespace classifier_test
}  // namespace lockstep::nn
