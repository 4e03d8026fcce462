// classification.json: contents, and validation of its values.
#include "train/tasks/classifier_notes.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace classifier_notes_test {

using Json = nlohmann::json;

struct Folder {
  TemporaryFolder folder;

  ClassifierNotes read(const std::string& text) const {
    write_file_atomically(folder.path() / kClassifierNotes, text);
    return read_notes(folder.path());
  }
  std::string problem_of(const Json& json) const {
    try {
      (void)read(json.dump());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(error.message().find(kClassifierNotes), std::string::npos) << error.message();
      EXPECT_FALSE(error.remedy().empty());
      return error.message();
    }
    return "";
  }
};

Json notes_json() {
  return {
      {"labels", {"a", "b", "c"}},
      {"sequence_length", 64},
      {"text_field", "text"},
      {"text_pair_field", ""},
      {"label_field", {"label"}},
      {"label_delimiter", ""}};
}

TEST(ClassifierNotes, ComeBackAsTheyWere) {
  config::DataSection data;
  data.text_field = "question";
  data.text_pair_field = "passage";
  data.label_field = {"x", "y"};
  data.label_delimiter = ";";
  data.text_delimiter = " | ";
  ClassifierNotes notes = notes_of(data, 96, {0.25, 0.75});
  notes.temperature = 1.5;
  notes.positive_label = "x";
  notes.generative = config::GenerativeSection{};
  notes.generative->prompt_template = "{text}: \n";
  notes.generative->verbalizers = {"yes", "no"};
  notes.generative->normalize = "tokens";
  notes.generative->decode = "greedy";
  notes.generative->chat = true;
  const Folder folder;
  const ClassifierNotes read = folder.read(to_json(notes, {"x", "y"}));
  EXPECT_EQ(read.sequence_length, 96);
  EXPECT_EQ(read.thresholds, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(read.text_field, "question");
  EXPECT_EQ(read.text_pair_field, "passage");
  EXPECT_EQ(read.label_field, data.label_field);
  EXPECT_EQ(read.label_delimiter, ";");
  EXPECT_EQ(read.text_delimiter, " | ");
  EXPECT_EQ(read.labels, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(read.temperature, 1.5);
  EXPECT_EQ(read.positive_label, "x");
  ASSERT_TRUE(read.generative);
  EXPECT_EQ(read.generative->prompt_template, "{text}: \n");
  EXPECT_EQ(read.generative->verbalizers, notes.generative->verbalizers);
  EXPECT_EQ(read.generative->normalize, "tokens");
  EXPECT_EQ(read.generative->decode, "greedy");
  EXPECT_TRUE(read.generative->chat);
}

TEST(ClassifierNotes, AFolderWithoutThemKnowsNothing) {
  const TemporaryFolder folder;
  for (const std::filesystem::path& path :
       {folder.path(), folder.path() / "none", std::filesystem::path()}) {
    const ClassifierNotes notes = read_notes(path);
    EXPECT_EQ(notes.sequence_length, 0);
    EXPECT_EQ(notes.temperature, 1);
    EXPECT_TRUE(notes.labels.empty());
    EXPECT_FALSE(notes.generative);
  }
}

TEST(ClassifierNotes, ThoseOfEarlierVersionsAreRead) {
  const Folder folder;
  EXPECT_EQ(folder.problem_of(notes_json()), "");
  const ClassifierNotes notes = read_notes(folder.folder.path());
  EXPECT_EQ(notes.temperature, 1);
  EXPECT_EQ(notes.text_delimiter, "");
  Json written = notes_json();
  written["generative"] = {
      {"prompt_template", "{text}"}, {"verbalizers", Json::array()}, {"normalize", "none"}};
  const ClassifierNotes old = folder.read(written.dump());
  EXPECT_EQ(old.generative->decode, "likelihood");
  EXPECT_FALSE(old.generative->chat);
}

TEST(ClassifierNotes, WhatIsNoneIsRefusedAndNamed) {
  const Folder folder;
  const auto with = [&](const char* key, const Json& value) {
    Json json = notes_json();
    json[key] = value;
    return folder.problem_of(json);
  };
  EXPECT_NE(folder.problem_of(Json::array()), "");
  EXPECT_NE(folder.problem_of(Json::object()), "");
  for (const char* key : {"labels", "sequence_length", "text_field", "label_field"}) {
    Json json = notes_json();
    json.erase(key);
    EXPECT_NE(folder.problem_of(json).find(key), std::string::npos) << key;
    EXPECT_NE(with(key, nullptr), "") << key;
  }
  for (const double temperature : {0.0, -1.0}) {
    EXPECT_NE(with("temperature", temperature).find("is not above 0"), std::string::npos);
  }
  EXPECT_NE(with("temperature", "1"), "");
  EXPECT_NE(
      with("thresholds", Json::array({0.5})).find("has 1 thresholds for 3 labels"),
      std::string::npos);
  EXPECT_NE(with("thresholds", {0.5, 0.5}), "");
  EXPECT_EQ(with("thresholds", {0.5, 0.5, 0.5}), "");
  Json two = notes_json();
  two["labels"] = {"a", "b"};
  two["thresholds"] = Json::array({0.5});  // for the second label
  EXPECT_EQ(folder.problem_of(two), "");
  EXPECT_NE(with("generative", Json::object()), "");
}

TEST(ClassifierNotes, FillWhatWasNotGivenAndNothingElse) {
  ClassifierNotes notes;
  notes.sequence_length = 96;
  notes.text_field = "question";
  notes.label_field = {"x"};
  config::DataSection data;
  data.text_field = "mine";
  data.label_delimiter = ";";
  data.sequence_length = 512;
  config::DataSection defaults;
  apply_notes(notes, {{"data.text_field", {}}}, data);
  EXPECT_EQ(data.text_field, "mine") << "it was given";
  EXPECT_EQ(data.label_field, notes.label_field);
  EXPECT_EQ(data.sequence_length, 96);
  EXPECT_EQ(data.label_delimiter, ";") << "they know of none";
  EXPECT_EQ(data.text_pair_field, defaults.text_pair_field);
}

}  // namespace classifier_notes_test
}  // namespace lockstep::train
