// Tests that the form of rows is recognized by their fields.
#include "data/row_form.h"

#include "data_testing.h"

namespace lockstep::data {
namespace row_form_test {

RowForm form(std::string_view text, const std::string& name = "a.jsonl", DataOptions options = {}) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{write(folder, name, text).string()};
  return recognize_rows(find_inputs(words, Format::kAuto, "data.train"), options, "data.train");
}

std::string error(std::string_view text) {
  try {
    form(text);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(RowForm, IsRecognizedByTheFields) {
  const std::string chat = R"([{"role": "user", "content": "a"}])";
  EXPECT_EQ(form(R"({"id": 1, "messages": )" + chat + "}"), (RowForm{Prompt::kChat, "messages"}));
  EXPECT_EQ(
      form(R"({"conversations": [{"from": "human", "value": "a"}]})"),
      (RowForm{Prompt::kChat, "conversations"}));
  EXPECT_EQ(
      form(R"({"prompt": )" + chat + R"(, "completion": )" + chat + "}"),
      (RowForm{Prompt::kChat, "prompt, completion"}));
  EXPECT_EQ(
      form(R"({"prompt": "a", "completion": "b"})"),
      (RowForm{Prompt::kPairs, "prompt, completion", "prompt", "completion"}));
  EXPECT_EQ(
      form(R"({"instruction": "a", "input": "", "output": "b"})"),
      (RowForm{Prompt::kAlpaca, "instruction, output"}));
  EXPECT_EQ(
      form("instruction,output\na,b\n", "a.csv"),
      (RowForm{Prompt::kAlpaca, "instruction, output"}));
  EXPECT_EQ(
      form("{\"messages\": []}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n").prompt,
      Prompt::kChat);
  DataOptions options;
  options.messages_field = "turns";
  EXPECT_EQ(form(R"({"turns": [{"role": "user"}]})", "a.jsonl", options).prompt, Prompt::kChat);
}

TEST(RowForm, TextIsNone) {
  for (const auto& [name, text] :
       {std::pair{"a.txt", "{\"messages\": []}\n"},
        {"a.jsonl", R"({"text": "a"})"},
        {"a.jsonl", R"({"text": "a", "messages": []})"},
        {"a.jsonl", R"({"title": "a"})"},
        {"a.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})"},
        {"a.jsonl", "not JSON"},
        {"a.jsonl", ""},
        {"a.csv", "text,label\na,b\n"}}) {
    EXPECT_EQ(form(text, name), RowForm{}) << text;
  }
}

TEST(RowForm, AmbiguousRowsAreRefused) {
  const std::string both = error("{\"messages\": [], \"instruction\": \"a\", \"output\": \"b\"}\n");
  EXPECT_TRUE(holds(
      both,
      "line 1: the row has the fields of chat (messages) and of alpaca (instruction, output)"))
      << both;
  EXPECT_TRUE(holds(both, "set data.prompt=chat or data.prompt=alpaca")) << both;
  const std::string mixed = error(
      "{\"messages\": []}\n{\"messages\": []}\n{\"instruction\": \"a\", \"output\": \"b\"}\n");
  EXPECT_TRUE(holds(
      mixed,
      "line 3: data.train rows have different forms: data.prompt=chat and, in this row, "
      "data.prompt=alpaca"))
      << mixed;
  const std::string judged = error("{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n");
  EXPECT_TRUE(holds(judged, "a prompt, a completion and a label")) << judged;
  EXPECT_TRUE(holds(judged, "preference.objective=kto")) << judged;
}

TEST(RowForm, OnlyTheRowsOfASliceAreRead) {
  const TemporaryFolder folder;
  const auto file =
      write(folder, "a.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const std::vector<std::string> words{file.string() + "[1:]"};
  EXPECT_EQ(
      recognize_rows(find_inputs(words, Format::kAuto, "data.train"), {}, "data.train").prompt,
      Prompt::kPairs);
}

}  // namespace row_form_test
}  // namespace lockstep::data
