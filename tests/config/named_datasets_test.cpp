// Tests datasets by Hub name.
#include "config/compat/named_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/harness.h"

namespace lockstep::config {
namespace named_datasets_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NamedDatasets : public testing::Test {
 protected:
  NamedDatasets() { harness_.environment["HF_HOME"] = harness_.path(""); }

  void write(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      harness_.write(name, "{}\n");
    }
  }
  /// A repository in the Hub's cache; its main branch is `commit`.
  void repository(
      const std::string& name, const std::string& commit, const std::vector<std::string>& files) {
    harness_.write("hub/" + name + "/refs/main", commit);
    for (const std::string& file : files) {
      write({"hub/" + name + "/snapshots/" + commit + "/" + file});
    }
  }
  std::vector<std::string> names(const std::vector<std::string>& files) const {
    std::vector<std::string> names;
    for (const std::string& file : files) {
      names.push_back(std::filesystem::path(file).lexically_relative(harness_.path("")).string());
    }
    return names;
  }

  Harness harness_;
};

TEST_F(NamedDatasets, AreReadFromTheHubsCacheByTheirFilesNames) {
  repository(
      "datasets--tatsu-lab--alpaca",
      "abc",
      {"data/train-00000-of-00002-a09b.parquet", "data/train-00001-of-00002-b7.parquet"});
  const Config config = harness_.run({"--dataset_name", "tatsu-lab/alpaca"}).config;
  EXPECT_THAT(
      names(config.data.train),
      ElementsAre(
          "hub/datasets--tatsu-lab--alpaca/snapshots/abc/data/train-00000-of-00002-a09b.parquet",
          "hub/datasets--tatsu-lab--alpaca/snapshots/abc/data/train-00001-of-00002-b7.parquet"));
  EXPECT_THAT(config.data.validation, IsEmpty());
  EXPECT_THAT(
      harness_.error({"data.dataset_name=tatsu-lab/alpaca", "data.train=x.txt"}),
      HasSubstr("contradicts"));
}

TEST_F(NamedDatasets, FoldersAreConfigurations) {
  const std::vector<std::string> splits{
      "train-00000-of-00001.parquet",
      "validation-00000-of-00001.parquet",
      "test-00000-of-00001.parquet"};
  std::vector<std::string> files;
  for (const std::string& file : splits) {
    files.push_back("wikitext-2-raw-v1/" + file);
    files.push_back("wikitext-103-raw-v1/" + file);
  }
  repository("datasets--Salesforce--wikitext", "f00", files);
  const std::string folder = "hub/datasets--Salesforce--wikitext/snapshots/f00/wikitext-2-raw-v1/";
  const std::vector<std::string> asked{
      "--dataset_name", "wikitext", "--dataset_config_name", "wikitext-2-raw-v1"};
  const Config config = harness_.run(asked).config;
  EXPECT_THAT(names(config.data.train), ElementsAre(folder + splits[0]));
  EXPECT_THAT(names(config.data.validation), ElementsAre(folder + splits[1]));
  EXPECT_THAT(config.data.test, IsEmpty());
  std::vector<std::string> predicts = asked;
  predicts.emplace_back("--do_predict");
  EXPECT_THAT(names(harness_.run(predicts).config.data.test), ElementsAre(folder + splits[2]));
  EXPECT_THAT(
      harness_.error({"data.dataset_name=wikitext"}),
      testing::AllOf(HasSubstr("wikitext-103-raw-v1, wikitext-2-raw-v1"), HasSubstr("several")));
  EXPECT_THAT(
      harness_.error({"data.dataset_name=wikitext", "data.dataset_config_name=wikitext-2-raw-v"}),
      HasSubstr("Did you mean 'wikitext-2-raw-v1'?"));
}

TEST_F(NamedDatasets, ReadmeTellsWhatIsWhat) {
  repository(
      "datasets--a--chats",
      "c0",
      {"data/train_sft-00000.parquet", "data/test_sft-00000.parquet", "data/extra.parquet"});
  harness_.write(
      "hub/datasets--a--chats/snapshots/c0/README.md",
      "---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n"
      "  - split: train_sft\n    path: data/train_sft-*\n  - split: test_sft\n    path:\n"
      "    - data/test_sft-*\n---\n# Chats\n");
  const std::string folder = "hub/datasets--a--chats/snapshots/c0/data/";
  const Config config = harness_
                            .run(
                                {"data.dataset_name=a/chats",
                                 "data.train_split=train_sft",
                                 "data.validation_split=test_sft"})
                            .config;
  EXPECT_THAT(names(config.data.train), ElementsAre(folder + "train_sft-00000.parquet"));
  EXPECT_THAT(names(config.data.validation), ElementsAre(folder + "test_sft-00000.parquet"));
  EXPECT_THAT(
      harness_.error({"data.dataset_name=a/chats"}),
      HasSubstr("has no split 'train'; available: test_sft, train_sft"));
}

TEST_F(NamedDatasets, PartsOfSplitsAreOfAllTheirFilesTogether) {
  repository("datasets--a--b", "new", {"test.jsonl", "train-00000.jsonl", "train-00001.jsonl"});
  const std::string folder = "hub/datasets--a--b/snapshots/new/";
  const auto train = [&](const std::string& split) {
    return harness_.run({"data.dataset_name=a/b", "--train_split_name", split}).config.data.train;
  };
  const std::string first = harness_.path(folder + "train-00000.jsonl"),
                    second = harness_.path(folder + "train-00001.jsonl"),
                    test = harness_.path(folder + "test.jsonl");
  EXPECT_THAT(train("train[:80%]"), ElementsAre("{" + first + "," + second + "}[:80%]"));
  EXPECT_THAT(
      train("train[1_0:100] + test[-5%:]"),
      ElementsAre("{" + first + "," + second + "}[10:100]", test + "[-5%:]"));
  EXPECT_THAT(train("train+test"), ElementsAre(first, second, test));
  const auto told = [&](const std::string& split) {
    return harness_.error({"data.dataset_name=a/b", "--train_split_name", split});
  };
  EXPECT_THAT(told("train[80%]"), HasSubstr("'[80%]' is not a valid split slice"));
  EXPECT_THAT(told("train[:many]"), HasSubstr("train[10:100]"));
  EXPECT_THAT(told("trian[:10]"), HasSubstr("has no split 'trian'; available: test, train"));
  EXPECT_THAT(told("train+"), HasSubstr("has no split ''"));
}

TEST_F(NamedDatasets, ARevisionIsABranchOrACommit) {
  repository("datasets--a--b", "new", {"train.jsonl"});
  write({"hub/datasets--a--b/snapshots/old/train.jsonl"});
  harness_.write("hub/datasets--a--b/refs/v1", "old");
  const auto train = [&](const std::string& revision) {
    return names(harness_.run({"data.dataset_name=a/b", "data.dataset_revision=" + revision})
                     .config.data.train);
  };
  EXPECT_THAT(train("main"), ElementsAre("hub/datasets--a--b/snapshots/new/train.jsonl"));
  EXPECT_THAT(train("v1"), ElementsAre("hub/datasets--a--b/snapshots/old/train.jsonl"));
  EXPECT_THAT(train("old"), ElementsAre("hub/datasets--a--b/snapshots/old/train.jsonl"));
  EXPECT_THAT(
      harness_.error({"data.dataset_name=a/b", "data.dataset_revision=v9"}),
      HasSubstr("hf download --repo-type dataset a/b --revision v9"));
}

TEST_F(NamedDatasets, AreReadFromTheCacheOfDatasets) {
  const std::string folder = "datasets/Salesforce___wikitext/wikitext-2-raw-v1/0.0.0/b08601/";
  write(
      {folder + "wikitext-train-00000-of-00002.arrow",
       folder + "wikitext-train-00001-of-00002.arrow",
       folder + "wikitext-validation.arrow",
       folder + "cache-0123.arrow"});
  const Config config = harness_.run({"data.dataset_name=wikitext"}).config;
  EXPECT_THAT(
      names(config.data.train),
      ElementsAre(
          folder + "wikitext-train-00000-of-00002.arrow",
          folder + "wikitext-train-00001-of-00002.arrow"));
  EXPECT_THAT(names(config.data.validation), ElementsAre(folder + "wikitext-validation.arrow"));
}

TEST_F(NamedDatasets, AFolderIsADataSetToo) {
  write({"mine/train.csv", "mine/valid.csv", "mine/notes.pdf", "flat/a.txt", "flat/b.txt"});
  const Config config = harness_.run({"data.dataset_name=@/mine"}).config;
  EXPECT_THAT(names(config.data.train), ElementsAre("mine/train.csv"));
  EXPECT_THAT(names(config.data.validation), ElementsAre("mine/valid.csv"));
  EXPECT_THAT(
      names(harness_.run({"data.dataset_name=@/flat"}).config.data.train),
      ElementsAre("flat/a.txt", "flat/b.txt"));
}

TEST_F(NamedDatasets, WhatIsNotHereIsFetchedByTheUser) {
  const std::string text = harness_.error({"data.dataset_name=who/knows"});
  EXPECT_THAT(text, HasSubstr("dataset 'who/knows' not found on this machine"));
  EXPECT_THAT(text, HasSubstr("hf download --repo-type dataset who/knows"));
}

TEST_F(NamedDatasets, APercentageIsHeldOutAsRunClmDoes) {
  EXPECT_DOUBLE_EQ(
      harness_.run({"--validation_split_percentage", "5"}).config.data.validation_fraction, 0.05);
  EXPECT_THAT(harness_.error({"validation_split_percentage=200"}), HasSubstr("percentage"));
}

}  // namespace named_datasets_test
}  // namespace lockstep::config
