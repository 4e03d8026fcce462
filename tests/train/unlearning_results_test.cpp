// Result files of an unlearning benchmark, and errors for other files.
#include "train/tasks/unlearning_results.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace unlearning_results_test {

using Json = nlohmann::json;

struct Retained {
  TemporaryFolder folder;

  /// Returns the error for this file content; empty if it is accepted.
  std::string problem_of(const std::string& text, std::optional<size_t> rows = 2) const {
    const std::filesystem::path path = folder.path() / "TOFU_EVAL.json";
    write_file_atomically(path, text);
    try {
      (void)read_retained(path, rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << text;
      return error.message();
    }
    return "";
  }
};

/// TOFU_SUMMARY.json is next to TOFU_EVAL.json and has one number per metric.
TEST(RetainedResults, ASummaryInTheirPlaceIsTold) {
  const Retained retained;
  for (const char* text :
       {R"({"forget_truth_ratio": 0.62, "model_utility": 0.5})",
        R"({"forget_truth_ratio": null})",
        R"({"forget_truth_ratio": {"agg_value": 0.62}})",
        R"({"forget_truth_ratio": {"value_by_index": []}})",
        R"({"forget_truth_ratio": {"value_by_index": {"0": {"score": null}, "1": 7}}})"}) {
    const std::string problem = retained.problem_of(text);
    EXPECT_NE(problem.find("has 0 rows, but forget_split has 2"), std::string::npos) << problem;
  }
  for (const char* text : {"{}", "[]", "7", R"({"model_utility": 0.5})"}) {
    const std::string problem = retained.problem_of(text);
    EXPECT_NE(problem.find("has no forget_truth_ratio"), std::string::npos) << problem;
  }
  EXPECT_NE(retained.problem_of("{").find("TOFU_EVAL.json"), std::string::npos);
}

TEST(RetainedResults, OfMuseAreTheAttacksAlone) {
  const Retained retained;
  const std::filesystem::path path = retained.folder.path() / "MUSE_EVAL.json";
  write_file_atomically(path, R"({"mia_min_k": {"agg_value": 0.4}, "forget_truth_ratio": 3})");
  const RetainedResults found = read_retained(path, std::nullopt);
  EXPECT_EQ(found.min_k_auc, 0.4);
  EXPECT_TRUE(found.truth_ratios.empty());
  EXPECT_NE(
      retained.problem_of(R"({"forget_truth_ratio": {}})", std::nullopt).find("no mia_min_k"),
      std::string::npos);
  write_file_atomically(path, R"({"mia_min_k": {"agg_value": null}})");
  EXPECT_LT(read_retained(path, std::nullopt).min_k_auc, 0);
  write_file_atomically(path, R"({"mia_min_k": 0.4})");
  EXPECT_LT(read_retained(path, std::nullopt).min_k_auc, 0);
}

TEST(RetainedResults, AFileThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  try {
    (void)read_retained(folder.path() / "none.json", 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("none.json does not exist"), std::string::npos);
    EXPECT_NE(error.remedy().find("TOFU_EVAL.json"), std::string::npos) << error.remedy();
  }
}

TEST(UnlearningResults, TheSummaryHasEachMetricThatHasANumber) {
  const TemporaryFolder folder;
  config::UnlearningSection section;
  section.metrics = {"model_utility", "forget_quality", "forget_Q_A_Prob", "mia_min_k"};
  const Json results{
      {"model_utility", {{"agg_value", 0.5}}},
      {"forget_quality", {{"agg_value", nullptr}}},
      {"forget_Q_A_Prob", {{"value_by_index", Json::object()}}},  // its mean is not available yet
      {"mia_min_k", 7},
      {"of_another_time", {{"agg_value", 1.0}}}};
  write_unlearning_results(folder.path() / "new" / "folder", results, section);
  EXPECT_EQ(
      Json::parse(read_file(folder.path() / "new" / "folder" / "TOFU_SUMMARY.json")),
      (Json{{"model_utility", 0.5}}));
  section.benchmark = "muse";
  write_unlearning_results(folder.path(), results, section);
  EXPECT_EQ(Json::parse(read_file(folder.path() / "MUSE_EVAL.json")), results);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "MUSE_SUMMARY.json"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "TOFU_EVAL.json"));
}

TEST(UnlearningResults, ThoseThatSayNoModelAreNotGoneOnWith) {
  const TemporaryFolder folder;
  const config::UnlearningSection section;
  EXPECT_EQ(read_unlearning_results(folder.path(), section, "abc"), (Json{{"model_hash", "abc"}}));
  for (const char* text : {"{}", "[]", R"({"model_hash": 7})"}) {
    write_file_atomically(folder.path() / "TOFU_EVAL.json", text);
    try {
      (void)read_unlearning_results(folder.path(), section, "abc");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.message().find("does not name its model"), std::string::npos);
    }
  }
}

}  // namespace unlearning_results_test
}  // namespace lockstep::train
