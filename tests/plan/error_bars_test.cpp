// Tests the error bars of predictions.
#include "plan/machines/error_bars.h"

#include <gtest/gtest.h>

#include "plan/search.h"

namespace lockstep::plan {
namespace error_bars_test {

TEST(ErrorBars, OfDataSheetsAreThoseOfPublishedRuns) {
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 8);
  const ErrorBars time = time_error_bars(cluster), memory = memory_error_bars(cluster);
  EXPECT_EQ(time.least, published_error_bars().time.least);
  EXPECT_LT(time.least, 1);
  EXPECT_GT(time.most, 1);
  EXPECT_EQ(memory.most, published_error_bars().memory.most);
  EXPECT_GT(order_bar(cluster), 1);
  EXPECT_LT(order_bar(cluster), time.most / time.least);
}

TEST(ErrorBars, OfAMeasuredMachineAreItsOwn) {
  Cluster cluster = uniform_cluster(find_device("cpu"), 2);
  cluster.groups[0].device.measured = true;
  cluster.groups[0].device.time_error = 0.25;
  EXPECT_NEAR(time_error_bars(cluster).most, 1.25, 1e-12);
  EXPECT_NEAR(time_error_bars(cluster).least, 0.8, 1e-12);
  EXPECT_EQ(order_bar(cluster), 1);
  EXPECT_LT(memory_error_bars(cluster).most, published_error_bars().memory.most);
  // A cluster with an unmeasured part has the error bars of data sheets.
  cluster.groups.push_back(uniform_cluster(find_device("h100-80gb"), 2).groups[0]);
  EXPECT_EQ(time_error_bars(cluster).most, published_error_bars().time.most);
  EXPECT_EQ(memory_error_bars(cluster).most, published_error_bars().memory.most);
}

TEST(ErrorBars, ARateIsTheInverseOfATime) {
  const ErrorBars rate = inverse_of({0.8, 1.25});
  EXPECT_NEAR(rate.least, 0.8, 1e-12);
  EXPECT_NEAR(rate.most, 1.25, 1e-12);
  EXPECT_EQ(text_of({0.91, 1.14}), "-9% +14%");
}

TEST(ErrorBars, StandBesideEveryFigureOfAPlan) {
  SearchRequest request;
  request.cluster = uniform_cluster(find_device("h100-80gb"), 8);
  request.base.model = model::preset("gpt2-tiny");
  request.base.sequence = 128;
  request.base.global_batch = 64;
  const SearchResult result = search(request);
  ASSERT_FALSE(result.best.empty());
  const std::string table = search_table(result, request);
  const std::string time = "(" + text_of(time_error_bars(request.cluster)) + ")";
  const std::string rate = "(" + text_of(inverse_of(time_error_bars(request.cluster))) + ")";
  const std::string memory = "(" + text_of(memory_error_bars(request.cluster)) + ")";
  EXPECT_NE(table.find("s " + time + ", "), std::string::npos) << table;
  EXPECT_NE(table.find("tokens/s " + rate), std::string::npos) << table;
  EXPECT_NE(table.find("of the peak " + rate), std::string::npos) << table;
  EXPECT_NE(table.find("GB " + memory + " of "), std::string::npos) << table;
  const std::string explained = explain(result.best.front().job, request.cluster);
  EXPECT_NE(explained.find("in nine of ten runs the step is "), std::string::npos) << explained;
  EXPECT_NE(explained.find("in nine of ten runs the peak is "), std::string::npos) << explained;
}

TEST(ErrorBars, PlansThatCannotBeToldApartAreNamed) {
  SearchRequest request;
  request.cluster = uniform_cluster(find_device("h100-80gb"), 8);
  request.base.model = model::preset("gpt2-tiny");
  request.base.sequence = 128;
  request.base.global_batch = 64;
  SearchResult result = search(request);
  ASSERT_GE(result.best.size(), 3U);
  const double bar = order_bar(request.cluster);
  for (size_t i = 0; i < result.best.size(); ++i) {
    result.best[i].step.step_seconds = i == 0 ? 1 : i == 1 ? 1 + (bar - 1) / 2 : 2 * bar;
  }
  const auto told = [&] { return search_table(result, request); };
  EXPECT_NE(told().find("the order of the first 2 is uncertain"), std::string::npos);
  result.best[1].step.step_seconds = bar * 1.01;
  EXPECT_EQ(told().find("is uncertain"), std::string::npos);
}

}  // namespace error_bars_test
}  // namespace lockstep::plan
