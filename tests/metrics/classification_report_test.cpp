// Compares with results of scikit-learn in classification_report_golden.json.
#include "metrics/classification_report.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::metrics {
namespace classification_report_test {

using nlohmann::ordered_json;

ordered_json golden() {
  std::ifstream file(
      std::string(LOCKSTEP_SOURCE_DIR) + "/tests/metrics/classification_report_golden.json");
  return ordered_json::parse(file).at("cases");
}

double value_of(const ordered_json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

void expect_number(
    const ordered_json& found, const ordered_json& wanted, const std::string& where) {
  ASSERT_EQ(found.is_null(), wanted.is_null()) << where;
  if (!wanted.is_null()) {
    EXPECT_NEAR(found.get<double>(), wanted.get<double>(), 1e-12) << where;
  }
}

void expect_value(double found, const ordered_json& wanted, const std::string& where) {
  expect_number(std::isnan(found) ? ordered_json() : ordered_json(found), wanted, where);
}

void expect_dict(const ordered_json& found, const ordered_json& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  auto at = found.begin();
  for (const auto& [key, row] : wanted.items()) {
    EXPECT_EQ(at.key(), key);
    if (row.is_object()) {
      for (const auto& [figure, number] : row.items()) {
        expect_number(at->at(figure), number, key + " " + figure);
      }
    } else {
      expect_number(*at, row, key);
    }
    ++at;
  }
}

std::vector<std::string> names_of(const ordered_json& given, size_t classes) {
  if (!given.is_null()) {
    return given.get<std::vector<std::string>>();
  }
  std::vector<std::string> names;
  for (size_t k = 0; k < classes; ++k) {
    names.push_back(std::to_string(k));
  }
  return names;
}

void expect_matrix(const Matrix& found, const ordered_json& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t row = 0; row < found.size(); ++row) {
    for (size_t column = 0; column < found.size(); ++column) {
      EXPECT_NEAR(found[row][column], wanted[row][column].get<double>(), 1e-12);
    }
  }
}

TEST(ClassificationReport, IsScikitLearnsToTheByte) {
  for (const ordered_json& test : golden()) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    const double zero_division = value_of(test.at("zero_division"));
    const int digits = test.at("digits").get<int>();
    if (test.at("y_true").front().is_array()) {
      const auto rows = [&](const char* key) {
        std::vector<std::vector<bool>> result;
        for (const ordered_json& row : test.at(key)) {
          result.emplace_back();
          for (const ordered_json& value : row) {
            result.back().push_back(value.get<int>() != 0);
          }
        }
        return result;
      };
      const auto names = names_of(test.at("target_names"), test.at("y_true").front().size());
      const auto report = make_report(rows("y_true"), rows("y_pred"), names, zero_division);
      EXPECT_EQ(to_text(report, digits), test.at("text").get<std::string>());
      expect_dict(to_json(report), test.at("dict"));
      continue;
    }
    Outcomes outcomes{
        test.at("y_true").get<std::vector<int64_t>>(),
        test.at("y_pred").get<std::vector<int64_t>>(),
        {}};
    if (!test.at("sample_weight").is_null()) {
      outcomes.weights = test.at("sample_weight").get<std::vector<double>>();
    }
    const size_t classes = test.at("confusion_matrix").at("None").size();
    const auto report =
        make_report(outcomes, names_of(test.at("target_names"), classes), zero_division);
    EXPECT_EQ(to_text(report, digits), test.at("text").get<std::string>());
    expect_dict(to_json(report), test.at("dict"));
    const Matrix matrix = confusion_matrix(outcomes, static_cast<int64_t>(classes));
    expect_matrix(matrix, test.at("confusion_matrix").at("None"));
    expect_matrix(by_true_class(matrix), test.at("confusion_matrix").at("true"));
    expect_value(accuracy(outcomes), test.at("accuracy"), "accuracy");
    expect_value(balanced_accuracy(outcomes), test.at("balanced_accuracy"), "balanced accuracy");
    expect_value(matthews_correlation(outcomes), test.at("matthews_corrcoef"), "Matthews");
    expect_value(cohen_kappa(outcomes), test.at("cohen_kappa"), "kappa");
  }
}

TEST(Softmax, TakesTheLowestOfEqualsAndLargeNumbers) {
  const std::vector<float> equal{1.0F, 3.0F, 3.0F};
  EXPECT_EQ(softmax(equal.data(), 3).likeliest, 1);
  const std::vector<float> large{1000.0F, 998.0F};
  const Softmax result = softmax(large.data(), 2);
  EXPECT_NEAR(result.probabilities[0], 1 / (1 + std::exp(-2.0)), 1e-15);
  EXPECT_NEAR(result.logarithms[1], -2 - std::log1p(std::exp(-2.0)), 1e-12);
}

}  // namespace classification_report_test
}  // namespace lockstep::metrics
