// Tests of labelled data and distributed classification.
#include <cmath>
#include <fstream>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "temporary_folder.h"
#include "train/batches/labelled_data.h"
#include "train/judgement/judgement.h"

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
  EXPECT_EQ(data.train.targets.classes, (std::vector<int64_t>{0, 1, 1, 1}));
  config.task.labels = {"no", "yes"};
  config.task.class_weights = {"balanced"};
  EXPECT_EQ(
      read_labelled_data(config, model).weights, (std::vector<double>{4.0 / 3 / 2, 4.0 / 1 / 2}));
  config.task.class_weights = {"yes=3"};
  EXPECT_EQ(read_labelled_data(config, model).weights, (std::vector<double>{1, 3}));
  config.task.class_weights = {"yess=3"};
  EXPECT_THROW(read_labelled_data(config, model), Error);
  config.task.class_weights.clear();
  config.data.validation_fraction = 0.5;
  const LabelledData split = read_labelled_data(config, model);
  EXPECT_EQ(split.train.targets.classes.size(), 2U);
  EXPECT_EQ(split.validation.targets.classes.size(), 2U);
  EXPECT_NE(
      split.validation.rows.place(split.validation.rows.rows[0]).find("a.csv"), std::string::npos);
  config.data.train.clear();
  config.task.labels.clear();
  EXPECT_THROW(read_labelled_data(config, model::ModelConfig{}), Error);
}

TEST(LabelledData, TheProblemIsWhatRowsLookLike) {
  using enum model::ProblemType;
  const TemporaryFolder folder;
  config::Config config;
  config.data.train = {write(
      folder,
      "a.jsonl",
      "{\"text\": \"a\", \"label\": [\"y\"]}\n{\"text\": \"b\", \"label\": [\"x\", \"y\"]}\n"
      "{\"text\": \"c\", \"label\": []}\n")};
  config.task.class_weights = {"balanced"};
  const LabelledData several = read_labelled_data(config, {});
  EXPECT_EQ(several.problem, kMultiLabel);
  EXPECT_EQ(several.labels, (Labels{"x", "y"}));
  EXPECT_EQ(several.train.targets.outputs, (std::vector<float>{0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(several.weights, (std::vector<double>{2, 0.5}));
  config.task.problem_type = "single_label_classification";
  EXPECT_THROW(read_labelled_data(config, {}), Error);

  config = {};
  config.data.train = {write(folder, "b.csv", "text,label,other\na,1.5,7\nb,2,8\n")};
  EXPECT_EQ(read_labelled_data(config, {}).problem, kRegression);
  EXPECT_EQ(read_labelled_data(config, {}).labels, Labels{"LABEL_0"});
  config.data.label_field = {"other", "label"};
  const LabelledData numbers = read_labelled_data(config, {});
  EXPECT_EQ(numbers.problem, kRegression);
  EXPECT_EQ(numbers.labels, (Labels{"other", "label"}));
  EXPECT_EQ(numbers.train.targets.outputs, (std::vector<float>{7, 1.5, 8, 2}));
  // The order of the model's outputs is kept.
  model::ModelConfig model;
  model.head = {model::HeadSpec::Kind::kClassifier, {"label", "other"}, kRegression};
  EXPECT_EQ(
      read_labelled_data(config, model).train.targets.outputs, (std::vector<float>{1.5, 7, 2, 8}));
  model.head.labels.push_back("third");
  EXPECT_THROW(read_labelled_data(config, model), Error);
}

TEST(LabelledData, AKeyThatOnlyClassifiersReadAsksForOne) {
  config::Config config;
  model::ModelConfig model;
  EXPECT_FALSE(classifies(config, model));
  config.data.label_field = {"gold"};
  EXPECT_TRUE(classifies(config, model));
  config.task.type = "language_modeling";
  EXPECT_FALSE(classifies(config, model));
}

}  // namespace classification_test
}  // namespace lockstep::train
