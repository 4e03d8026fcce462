// Tests of regression metrics.
#include "metrics/regression.h"

#include <cmath>

#include <gtest/gtest.h>

#include "metrics/curve_picture.h"
#include "metrics/directions.h"

namespace lockstep::metrics {
namespace regression_test {

/// Values computed by hand; tests/parity compares with scipy and scikit-learn.
TEST(Regression, HasTheUsualFigures) {
  const RegressionFigures found = measure_numbers({1, 2, 2, 5, 7.5}, {1.5, 2, 1, 4, 9});
  EXPECT_NEAR(found.mse, 0.9, 1e-12);
  EXPECT_NEAR(found.rmse, std::sqrt(0.9), 1e-12);
  EXPECT_NEAR(found.mae, 0.8, 1e-12);
  EXPECT_NEAR(found.r2, 1 - 4.5 / 29.0, 1e-12);
  EXPECT_NEAR(found.pearson, 0.9557417336432609, 1e-12);
  EXPECT_NEAR(found.spearman, 0.8207826816681233, 1e-12);
}

TEST(Regression, EqualValuesShareTheirRanks) {
  EXPECT_EQ(ranks_of({3, 1, 3, 2, 3}), (std::vector<double>{4, 1, 4, 2, 4}));
  const RegressionFigures constant = measure_numbers({1, 2}, {5, 5});
  EXPECT_TRUE(std::isnan(constant.pearson));
  EXPECT_TRUE(std::isnan(constant.spearman));
  EXPECT_TRUE(std::isnan(measure_numbers({2, 2}, {5, 4}).r2));
  const RegressionFigures mean = mean_of({measure_numbers({0}, {1}), measure_numbers({0}, {3})});
  EXPECT_EQ(mean.mse, 5);
  EXPECT_EQ(mean.mae, 2);
}

TEST(Directions, AreOfTheMetricAndNotOfItsName) {
  for (const char* name :
       {"eval_loss",
        "mse",
        "eval_mae",
        "rmse",
        "brier",
        "ece",
        "perplexity",
        "hamming_loss",
        "calibration_error"}) {
    EXPECT_FALSE(greater_is_better(name)) << name;
  }
  for (const char* name :
       {"accuracy",
        "eval_f1",
        "matthews_correlation",
        "spearman",
        "r2",
        "token_accuracy",
        "roc_auc",
        "rewards/margins"}) {
    EXPECT_TRUE(greater_is_better(name)) << name;
  }
}

TEST(CurvePicture, DrawsNamedCurvesWithinItself) {
  const std::string text = draw_curves(
      {{"a<b", {{0, 0.5, 1}, {0, NAN, 1}}}, {"flat", {{0, 1}, {2, 2}}}},
      {"Loss", "step", "loss", /*is_unit=*/false});
  EXPECT_EQ(text.find("nan"), std::string::npos);
  for (const char* part : {"a&lt;b", "flat", ">Loss<", "<path d=\"M"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(draw_curves({}, {"", "", "", false}).find("nan"), std::string::npos);
}

}  // namespace regression_test
}  // namespace lockstep::metrics
