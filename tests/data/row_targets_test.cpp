// Tests of classification and regression targets: labels, their order and missing values.
#include "data/row_targets.h"

#include "data_testing.h"

namespace lockstep::data {
namespace row_targets_test {

using Texts = std::vector<std::string>;
using enum TargetForm;

LabelledRows read(
    const TemporaryFolder& folder,
    const char* name,
    const std::string& text,
    Texts fields = {"label"}) {
  DataOptions options;
  options.label_fields = std::move(fields);
  const Texts words{write(folder, name, text).string()};
  return read_labelled(words, options, "data.train");
}

std::vector<int64_t> classes(
    const LabelledRows& rows, const Texts& labels, MissingLabels missing = MissingLabels::kError) {
  return targets_of(rows, kClass, 1, labels, "data.test", missing).classes;
}

TEST(RowTargets, LabelsAreSortedAsNumbersOrByCodePoint) {
  const TemporaryFolder folder;
  const auto numbers = read(folder, "a.csv", "text,label\na,10\nb,2\nc,-1\nd,2\n");
  EXPECT_EQ(find_labels(numbers, kClass, "data.train"), (Texts{"-1", "2", "10"}));
  EXPECT_EQ(classes(numbers, {"-1", "2", "10"}), (std::vector<int64_t>{2, 1, 0, 1}));
  const auto names = read(folder, "b.csv", "text,label\na,10\nb,2\nc,é\nd,Z\ne,a\n");
  EXPECT_EQ(find_labels(names, kClass, "data.train"), (Texts{"10", "2", "Z", "a", "é"}));
  expect_parts(
      error_of([&] {
        find_labels(read(folder, "c.csv", "text,label\na,yes\nb,yes\n"), kClass, "data.train");
      }),
      {"data.train", "\"yes\""});
  expect_parts(
      error_of([&] {
        find_labels(read(folder, "d.csv", "text,label\na,yes\nb,\nc,no\n"), kClass, "data.train");
      }),
      {"1 row without a label", "d.csv, line 3"});
}

TEST(RowTargets, UnknownLabelsAreListedWithTheirRows) {
  const TemporaryFolder folder;
  const auto rows = read(folder, "dev.csv", "text,label\na,goood\nb,bad\nc,other\n");
  expect_parts(
      error_of([&] { classes(rows, {"bad", "good"}); }),
      {"data.test: 2 rows",
       "dev.csv, line 2: \"goood\".",
       "'good'",
       "dev.csv, line 4: \"other\"",
       "bad, good",
       "task.labels"});
  const auto plain = read(folder, "n.csv", "text,label\na,1\nb,0\nc,LABEL_1\n");
  EXPECT_EQ(classes(plain, {"LABEL_0", "LABEL_1"}), (std::vector<int64_t>{1, 0, 1}));
  const auto hidden = read(folder, "h.csv", "text,label\na,-1\nb,\nc,good\n");
  EXPECT_EQ(
      classes(hidden, {"bad", "good"}, MissingLabels::kNoClass),
      (std::vector<int64_t>{kNoClass, kNoClass, 1}));
}

TEST(RowTargets, FormsAreToldByTheirLooks) {
  const TemporaryFolder folder;
  const auto form = [&](const char* name, const std::string& rows) {
    return find_form(read(folder, name, rows), 1, "data.train");
  };
  EXPECT_EQ(form("a.csv", "text,label\na,1\nb,2\n"), kClass);
  EXPECT_EQ(form("b.csv", "text,label\na,1\nb,2.5\nc,\n"), kNumbers);
  EXPECT_EQ(form("c.csv", "text,label\na,1e3\nb,-2\n"), kNumbers);
  EXPECT_EQ(form("d.csv", "text,label\na,v1.2\nb,x\n"), kClass);
  EXPECT_EQ(form("e.csv", "text,label\na,['x']\nb,[]\n"), kLabels);
  const auto of_fields = [&](const char* name, const std::string& rows) {
    return find_form(read(folder, name, rows, {"x", "y"}), 2, "data.train");
  };
  EXPECT_EQ(of_fields("f.csv", "text,x,y\na,0,1\nb,True,false\n"), kLabels);
  EXPECT_EQ(of_fields("g.csv", "text,x,y\na,0,1\nb,2,1\n"), kNumbers);
  expect_parts(
      error_of([&] { form("h.csv", "text,label\na,['x']\nb,x\nc,y\n"); }),
      {"data.train: 1 row with a list of labels, while 2 others have a single one",
       "h.csv, line 2: [x]",
       "multi_label_classification"});
  expect_parts(
      error_of([&] { form("i.csv", "text,label\na,1.5\nb,x\nc,3\n"); }),
      {"1 row with a label that is no number, while 2 others",
       "i.csv, line 3: \"x\"",
       "single_label_classification"});
}

TEST(RowTargets, OfLabelsAreOnesAndZeros) {
  const TemporaryFolder folder;
  const auto lists = read(folder, "a.csv", "text,label\na,\"['y', 'x']\"\nb,[]\nc,['z']\n");
  EXPECT_EQ(find_labels(lists, kLabels, "data.train"), (Texts{"x", "y", "z"}));
  const RowTargets made = targets_of(lists, kLabels, 1, {"x", "y", "z"}, "data.train");
  EXPECT_EQ(made.classes, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(made.outputs, (std::vector<float>{1, 1, 0, 0, 0, 0, 0, 0, 1}));
  expect_parts(
      error_of([&] { targets_of(lists, kLabels, 1, {"x", "yy"}, "data.train"); }),
      {"2 rows", "a.csv, line 2: \"y\".", "line 4: \"z\""});
  expect_parts(
      error_of([&] { targets_of(lists, kClass, 1, {"x", "y"}, "data.train"); }),
      {"a.csv, line 2: [y, x]", "multi_label_classification"});
  const auto fields = read(folder, "b.csv", "text,x,y\na,0,1\nb,true,0.0\n", {"x", "y"});
  EXPECT_EQ(
      targets_of(fields, kLabels, 2, {"x", "y"}, "data.train").outputs,
      (std::vector<float>{0, 1, 1, 0}));
  expect_parts(
      error_of([&] {
        const auto bad = read(folder, "c.csv", "text,x,y\na,0,1\nb,2,\n", {"x", "y"});
        targets_of(bad, kLabels, 2, {"x", "y"}, "data.train");
      }),
      {"2 rows with a value other than 0 and 1",
       "c.csv, line 3: \"2\" for \"x\"",
       "\"\" for \"y\""});
}

TEST(RowTargets, OfNumbersAreNumbers) {
  const TemporaryFolder folder;
  const auto rows = read(folder, "a.csv", "text,label\na,1.5\nb,-2\nc,\n");
  const RowTargets made =
      targets_of(rows, kNumbers, 1, {"LABEL_0"}, "data.test", MissingLabels::kNoClass);
  EXPECT_EQ(made.classes, (std::vector<int64_t>{0, 0, kNoClass}));
  EXPECT_EQ(made.outputs, (std::vector<float>{1.5, -2, 0}));
  expect_parts(
      error_of([&] {
        targets_of(
            read(folder, "b.csv", "text,label\na,1.5\nb,nan\nc,x\n"),
            kNumbers,
            1,
            {"LABEL_0"},
            "data.train");
      }),
      {"2 rows without a number", "b.csv, line 3: \"nan\"", "line 4: \"x\""});
}

}  // namespace row_targets_test
}  // namespace lockstep::data
