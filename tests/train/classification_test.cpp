#include "train/classification.h"

#include <cmath>
#include <fstream>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace classification_test {

using Labels = std::vector<std::string>;

std::string write(const TemporaryFolder& folder, const char* name, const char* text) {
  std::ofstream(folder.path() / name) << text;
  return (folder.path() / name).string();
}

TEST(LabelledData, LabelsAreThoseNamedThenTheModelsThenTheTrainingRows) {
  const TemporaryFolder folder;
  config::Config config;
  config.task.type = "sequence_classification";
  config.data.train = {write(folder, "a.csv", "text,label\na,yes\nb,no\nc,no\nd,no\n")};
  model::ModelConfig model;
  EXPECT_EQ(read_labelled_data(config, model).labels, (Labels{"no", "yes"}));
  model.head = {model::HeadSpec::Kind::kClassifier, {"yes", "no", "never"}};
  const LabelledData data = read_labelled_data(config, model);
  EXPECT_EQ(data.labels, (Labels{"yes", "no", "never"}));
  EXPECT_EQ(data.train.classes, (std::vector<int64_t>{0, 1, 1, 1}));
  config.task.labels = {"no", "yes"};
  config.task.class_weights = {"balanced"};
  EXPECT_EQ(
      read_labelled_data(config, model).weights, (std::vector<double>{4.0 / 3 / 2, 4.0 / 1 / 2}));
  config.data.validation_fraction = 0.5;
  const LabelledData split = read_labelled_data(config, model);
  EXPECT_EQ(split.train.classes.size(), 2U);
  EXPECT_EQ(split.validation.classes.size(), 2U);
  EXPECT_NE(
      split.validation.rows.place(split.validation.rows.rows[0]).find("a.csv"), std::string::npos);
  config.data.train.clear();
  config.task.labels.clear();
  EXPECT_THROW(read_labelled_data(config, model::ModelConfig{}), Error);
}

TEST(Judgement, IsOfRowsWithAClass) {
  const at::Tensor logits = at::tensor({0.F, 1.F, 2.F, 0.F, 5.F, 5.F, 9.F, 0.F}).view({4, 2});
  const Judgement plain = judge(logits, {1, 1, 0, data::kNoClass}, {"no", "yes"});
  const double first = std::log1p(std::exp(-1.0)), second = 2 + std::log1p(std::exp(-2.0)),
               third = std::log(2.0);
  EXPECT_EQ(plain.rows, 3);
  EXPECT_NEAR(plain.loss, (first + second + third) / 3, 1e-12);
  EXPECT_EQ(plain.metrics[0].first, "accuracy");
  EXPECT_NEAR(plain.metrics[0].second, 2.0 / 3, 1e-12);  // of equals the first
  const Judgement weighed = judge(logits, {1, 1, 0, data::kNoClass}, {"no", "yes"}, {{3, 1}, 2});
  const auto focal = [](double loss) { return std::pow(1 - std::exp(-loss), 2) * loss; };
  EXPECT_NEAR(weighed.loss, (focal(first) + focal(second) + 3 * focal(third)) / 5, 1e-12);
  EXPECT_EQ(judge(logits, std::vector<int64_t>(4, data::kNoClass), {"no", "yes"}).rows, 0);
}

}  // namespace classification_test
}  // namespace lockstep::train
