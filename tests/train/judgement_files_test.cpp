// Prediction and report files of a classifier, for each problem type.
#include "train/judgement/judgement_files.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "temporary_folder.h"
#include "train/judgement/report_page.h"

namespace lockstep::train {
namespace judgement_files_test {

using Json = nlohmann::json;
using model::ProblemType;

/// Rows of the given texts and a model's logits for them.
struct Case {
  LabelledSet set;
  at::Tensor logits;
  model::HeadSpec head;

  Case(
      std::vector<std::string> labels,
      ProblemType problem,
      std::vector<int64_t> classes,
      std::vector<float> outputs,
      std::vector<float> scores)
      : logits(at::tensor(scores).view({std::ssize(classes), std::ssize(labels)})),
        head{model::HeadSpec::Kind::kClassifier, std::move(labels), problem} {
    for (size_t row = 0; row < classes.size(); ++row) {
      set.rows.rows.push_back({fmt::format("text {}", row), "", std::nullopt, 0, 0});
    }
    set.targets = {std::move(classes), std::move(outputs)};
  }
  Answered answered(std::vector<double> thresholds = {}) const {
    return {set, logits, head, std::move(thresholds)};
  }
  Json line(size_t row, Shown shown = Shown::kTaken, std::vector<double> thresholds = {}) const {
    Answered said = answered(std::move(thresholds));
    said.shown = shown;
    return Json::parse(prediction_line(said, row));
  }
};

Case three_classes() {
  return {
      {"a", "b,b", "c"},
      ProblemType::kSingleLabel,
      {0, 1, data::kNoClass, 0},
      {},
      {2, 0, 0, 2, 0, 0, 0, 0, 5, 0, 0, 1}};
}

TEST(Predictions, ARowOfOneLabelHasItsProbability) {
  Case rows = three_classes();
  rows.set.rows.rows[1].pair = "and this";
  const double likely = std::exp(2.0) / (std::exp(2.0) + 2);
  const Json first = rows.line(0);
  EXPECT_EQ(first.at("index"), 0);
  EXPECT_EQ(first.at("text"), "text 0");
  EXPECT_FALSE(first.contains("pair"));
  EXPECT_EQ(first.at("label"), "a");
  EXPECT_EQ(first.at("prediction"), "a");
  EXPECT_NEAR(first.at("probability").get<double>(), likely, 1e-6);
  EXPECT_NEAR(first.at("loss").get<double>(), -std::log(likely), 1e-6);
  EXPECT_FALSE(first.contains("probabilities"));
  const Json wrong = rows.line(1, Shown::kAll);
  EXPECT_EQ(wrong.at("pair"), "and this");
  EXPECT_EQ(wrong.at("label"), "b,b");
  EXPECT_EQ(wrong.at("prediction"), "a");
  EXPECT_EQ(wrong.at("probabilities").size(), 3U);
  EXPECT_NEAR(wrong.at("probabilities").at("b,b").get<double>(), (1 - likely) / 2, 1e-6);
}

TEST(Predictions, ARowWithoutALabelHasNeitherLabelNorLoss) {
  const Json line = three_classes().line(2);
  EXPECT_EQ(line.at("prediction"), "c");
  EXPECT_FALSE(line.contains("label"));
  EXPECT_FALSE(line.contains("loss"));
}

TEST(Predictions, ATextThatIsNoUtf8IsALineOfJsonAllTheSame) {
  Case rows = three_classes();
  rows.set.rows.rows[0].text = "a\xff\nb";
  EXPECT_EQ(rows.line(0).at("text"), "a\ufffd\nb");
}

Case of_labels() {
  return {
      {"joy", "it's", "say \"it's\""},
      ProblemType::kMultiLabel,
      {0, 0, data::kNoClass},
      {1, 0, 1, 0, 0, 0, 0, 0, 0},
      {3, 3, -3, -1, -1, -1, 1, 1, 1}};
}

TEST(Predictions, ARowOfSeveralLabelsTellsThoseThatItTakes) {
  const Case rows = of_labels();
  const double likely = 1 / (1 + std::exp(-3.0));
  const Json first = rows.line(0);
  EXPECT_EQ(first.at("label"), Json::parse(R"(["joy", "say \"it's\""])"));
  EXPECT_EQ(first.at("prediction"), (Json{"joy", "it's"}));
  EXPECT_EQ(first.at("probabilities").size(), 2U);
  EXPECT_NEAR(
      first.at("loss").get<double>(), (-std::log(likely) - 2 * std::log(1 - likely)) / 3, 1e-6);
  EXPECT_EQ(rows.line(1).at("prediction"), Json::array());
  EXPECT_EQ(rows.line(1).at("label"), Json::array());
  EXPECT_EQ(rows.line(1).at("probabilities"), Json::object());
  EXPECT_EQ(rows.line(1, Shown::kAll).at("probabilities").size(), 3U);
  EXPECT_EQ(rows.line(1, Shown::kTaken, {0.2, 0.9, 0.2}).at("prediction").size(), 2U);
}

TEST(Predictions, NumbersAreNumbers) {
  const Case one({"score"}, ProblemType::kRegression, {0, data::kNoClass}, {2, 0}, {2.5, 7});
  EXPECT_EQ(one.line(0).at("prediction"), 2.5);
  EXPECT_EQ(one.line(0).at("label"), 2);
  EXPECT_EQ(one.line(0).at("loss"), 0.25);
  EXPECT_FALSE(one.line(0, Shown::kAll).contains("probabilities"));
  EXPECT_FALSE(one.line(1).contains("label"));
  const Case two({"x", "y"}, ProblemType::kRegression, {0}, {1, 2}, {1.5, 3});
  EXPECT_EQ(two.line(0).at("prediction"), (Json{{"x", 1.5}, {"y", 3}}));
  EXPECT_EQ(two.line(0).at("label"), (Json{{"x", 1}, {"y", 2}}));
  EXPECT_EQ(two.line(0).at("loss"), 0.625);
}

TEST(PredictResults, AreAsTransformersScriptWritesThem) {
  EXPECT_EQ(
      predict_results(three_classes().answered()), "index\tprediction\n0\ta\n1\ta\n2\tc\n3\tc\n");
  EXPECT_EQ(
      predict_results(of_labels().answered()),
      "index\tprediction\n0\t['joy', \"it's\"]\n1\t[]\n2\t['joy', \"it's\", 'say \"it\\'s\"']\n");
  const Case one({"score"}, ProblemType::kRegression, {0, 0}, {0, 0}, {2.5, -0.0004F});
  EXPECT_EQ(predict_results(one.answered()), "index\tprediction\n0\t2.500\n1\t-0.000\n");
  const Case two({"x", "y"}, ProblemType::kRegression, {0}, {1, 2}, {1.5, 3});
  EXPECT_EQ(predict_results(two.answered()), "index\tprediction\n0\t[1.500, 3.000]\n");
  EXPECT_EQ(
      predict_results(Case({"a", "b"}, ProblemType::kSingleLabel, {}, {}, {}).answered()),
      "index\tprediction\n");
}

/// A folder with all files of a case.
struct Written {
  TemporaryFolder folder;
  Judgement judgement;

  explicit Written(const Case& rows, const std::vector<std::string>& history = {})
      : judgement(judge(rows.logits, rows.set.targets, rows.head)) {
    write_judgement(folder.path() / "new", judgement, rows.answered(), history);
  }
  bool has(const char* name) const { return std::filesystem::exists(folder.path() / "new" / name); }
  std::string text(const char* name) const { return read_file(folder.path() / "new" / name); }
};

TEST(WriteJudgement, OfOneLabelHasTheConfusionWithoutRowsThatHaveNone) {
  const Written written(three_classes());
  EXPECT_EQ(
      written.text("confusion_matrix.csv"), "true,a,\"b,b\",c\na,1,0,1\n\"b,b\",1,0,0\nc,0,0,0\n");
  EXPECT_EQ(written.text("most_confused.csv"), "true,predicted,count\na,c,1\n\"b,b\",a,1\n");
  EXPECT_TRUE(written.text("calibration.csv").starts_with("low,high,rows,confidence,accuracy\n"));
  const std::string bins = written.text("calibration.csv");
  EXPECT_EQ(std::ranges::count(bins, '\n'), 16);
  EXPECT_EQ(bins.find("nan"), std::string::npos) << bins;
  for (const char* name :
       {"confusion_matrix.svg", "roc_curve.svg", "precision_recall_curve.svg", "calibration.svg"}) {
    ASSERT_TRUE(written.has(name)) << name;
    EXPECT_TRUE(written.text(name).starts_with("<svg")) << name;
    EXPECT_NE(written.text("report.html").find(written.text(name)), std::string::npos) << name;
  }
  EXPECT_FALSE(written.has("losses.svg"));
  EXPECT_TRUE(written.has("classification_report.txt"));
  EXPECT_FALSE(written.has("regression_report.json"));
  EXPECT_FALSE(written.has("multilabel_confusion.csv"));
  EXPECT_EQ(Json::parse(written.text("classification_report.json")).at("a").at("support"), 2);
}

TEST(WriteJudgement, TheLargestLossesComeFirst) {
  const Written written(three_classes());
  std::vector<int> order;
  const std::string text = written.text("top_losses.jsonl");
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    order.push_back(Json::parse(text.substr(at, text.find('\n', at) - at)).at("index"));
  }
  EXPECT_EQ(order, (std::vector<int>{1, 3, 0}));  // row 2 has no label
  std::vector<float> scores(120, 0);
  const Case many({"a", "b"}, ProblemType::kSingleLabel, std::vector<int64_t>(60, 0), {}, scores);
  const std::string fifty = Written(many).text("top_losses.jsonl");
  EXPECT_EQ(std::ranges::count(fifty, '\n'), 50);
}

TEST(WriteJudgement, OfSeveralLabelsCountsEachByItself) {
  const Written written(of_labels());
  EXPECT_EQ(
      written.text("multilabel_confusion.csv"),
      "label,tn,fp,fn,tp\njoy,1,0,0,1\nit's,1,1,0,0\n\"say \"\"it's\"\"\",1,0,1,0\n");
  EXPECT_TRUE(written.has("classification_report.txt"));
  EXPECT_FALSE(written.has("confusion_matrix.csv"));
  EXPECT_FALSE(written.has("calibration.csv"));
  EXPECT_TRUE(written.has("roc_curve.svg"));
  EXPECT_FALSE(written.has("calibration.svg"));
}

TEST(WriteJudgement, OfNumbersHasNoReportOfLabelsAndNullForWhatHasNoValue) {
  const Written written(Case({"score"}, ProblemType::kRegression, {0, 0}, {1, 1}, {1, 2}));
  const Json report = Json::parse(written.text("regression_report.json")).at("score");
  EXPECT_EQ(report.at("mse"), 0.5);
  EXPECT_EQ(report.at("mae"), 0.5);
  EXPECT_TRUE(report.at("r2").is_null());
  EXPECT_TRUE(report.at("pearson").is_null());
  EXPECT_FALSE(written.has("classification_report.txt"));
  EXPECT_FALSE(written.has("confusion_matrix.svg"));
  const std::string table = report_text(
      written.judgement,
      {model::HeadSpec::Kind::kClassifier, {"a long name of it"}, ProblemType::kRegression});
  EXPECT_NE(table.find("a long name of it         0.5"), std::string::npos) << table;
}

TEST(WriteJudgement, OfRowsThatAllLackALabelHasTheAnswersAlone) {
  const Case rows(
      {"a", "b"}, ProblemType::kSingleLabel, {data::kNoClass, data::kNoClass}, {}, {1, 0, 0, 1});
  const Written written(rows);
  EXPECT_EQ(written.text("predict_results.txt"), "index\tprediction\n0\ta\n1\tb\n");
  EXPECT_TRUE(written.has("predictions.jsonl"));
  for (const char* name :
       {"report.html", "confusion_matrix.csv", "classification_report.txt", "top_losses.jsonl"}) {
    EXPECT_FALSE(written.has(name)) << name;
  }
}

TEST(WriteJudgement, ThePageShowsWhatTextsSayAndDoesNotObeyIt) {
  Case rows({"<b>", "no"}, ProblemType::kSingleLabel, {0, 1}, {}, {0, 3, 0, 3});
  rows.set.rows.rows[0].text =
      "<script>alert(1)</script>" + std::string(373, 'x') + "\u00e9\u00e9\u00e9";
  rows.set.rows.rows[0].pair = "& more";
  const std::string page = Written(
                               rows,
                               {R"({"step": 1, "loss": 4.0})",
                                R"({"step": 2, "loss": 3.0, "grad_norm": null})",
                                R"({"step": 2, "eval_loss": null})",
                                "torn {"})
                               .text("report.html");
  EXPECT_LT(page.find(">Loss<"), page.find("<h2>Confusion</h2>"));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_NE(page.find("x\u00e9\u2026</td>"), std::string::npos) << "cut between two letters";
  EXPECT_NE(page.find("<h2>Training</h2>"), std::string::npos);
  EXPECT_EQ(page.find(">Evaluation<"), std::string::npos) << "one point is no curve";
  EXPECT_EQ(Written(rows).text("report.html").find("<h2>Training</h2>"), std::string::npos);
}

TEST(WriteAnswers, HaveASuffixOfTheirOwn) {
  const TemporaryFolder folder;
  const Case rows = three_classes();
  write_answers(folder.path(), rows.answered(), "_mm");
  const std::string lines = read_file(folder.path() / "predictions_mm.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 4);
  EXPECT_EQ(read_file(folder.path() / "predict_results_mm.txt"), predict_results(rows.answered()));
}

TEST(Calibration, CountsTheRowsThatHaveALabel) {
  const auto bins = calibration_of(three_classes().answered(), 10);
  ASSERT_EQ(bins.size(), 10U);
  int64_t rows = 0;
  for (const metrics::CalibrationBin& bin : bins) {
    rows += bin.rows;
    EXPECT_TRUE(bin.rows > 0 || (bin.accuracy == 0 && bin.confidence == 0));
  }
  EXPECT_EQ(rows, 3);
  EXPECT_EQ(bins[7].rows, 2);  // e^2 / (e^2 + 2)
  EXPECT_EQ(bins[7].accuracy, 0.5);
}

}  // namespace judgement_files_test
}  // namespace lockstep::train
