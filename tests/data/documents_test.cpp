// Tests of splitting text files into documents and of cuts within long text.
#include "data/documents.h"

#include "data/text_cut.h"
#include "data_testing.h"
#include "shared_data.h"

namespace lockstep::data {
namespace documents_test {

using Texts = std::vector<std::string>;

Texts text_documents(std::string_view text, TextCutting cutting) {
  const TemporaryFolder folder;
  return documents_of(write(folder, "a.txt", text), Format::kText, {}, cutting);
}

TEST(TextDocuments, AreFilesLinesOrParagraphs) {
  const std::string text = "one\r\ntwo\n\n \t\nthree\nfour";
  EXPECT_EQ(text_documents(text, {TextDocuments::kFile}), (Texts{"one\ntwo\n\n \t\nthree\nfour"}));
  EXPECT_EQ(text_documents(text, {TextDocuments::kLine}), (Texts{"one", "two", "three", "four"}));
  EXPECT_EQ(text_documents(text, {TextDocuments::kParagraph}), (Texts{"one\ntwo", "three\nfour"}));
  EXPECT_EQ(text_documents("", {}), (Texts{}));
  EXPECT_EQ(text_documents("x\n", {}), (Texts{"x\n"}));
  EXPECT_EQ(text_documents("\n\n", {TextDocuments::kParagraph}), (Texts{}));
}

TEST(TextDocuments, EndAtASeparatorLine) {
  const std::string text =
      "a\nb\n<|endoftext|>\n\nc\n<|endoftext|>\n<|endoftext|>\nd<|endoftext|>\n";
  EXPECT_EQ(text_documents(text, {}), (Texts{"a\nb", "\nc", "d<|endoftext|>\n"}));
  EXPECT_EQ(
      text_documents(text, {TextDocuments::kParagraph}), (Texts{"a\nb", "c", "d<|endoftext|>"}));
}

TEST(TextDocuments, ComeInPartsThatJoinToTheWhole) {
  std::string text;
  while (text.size() < 3 * kTextPart) {
    text +=
        "word and word, " + std::to_string(text.size()) + (text.size() % 5 == 0 ? " \n " : " x");
  }
  const std::string unbroken(3 * kTextPart + 7, 'z');
  const TemporaryFolder folder;
  for (const std::string& whole : {text, unbroken, text + "\n" + unbroken + "\n"}) {
    const auto path = write(folder, "a.txt", whole);
    for (const bool parts : {true, false}) {
      auto reader = open_text(path, {TextDocuments::kFile, parts});
      Record record;
      std::string joined;
      size_t count = 0;
      int64_t line = 1;
      while (reader->next(record)) {
        EXPECT_EQ(record.begins, count == 0);
        EXPECT_EQ(record.line, line);
        EXPECT_LE(record.text.size(), parts ? 2 * kTextPart : whole.size());
        line += std::count(record.text.begin(), record.text.end(), '\n');
        joined += record.text;
        ++count;
      }
      EXPECT_TRUE(record.ends);
      EXPECT_EQ(joined, whole);
      EXPECT_EQ(count > 1, parts);
    }
  }
}

TEST(TextDocuments, AreCutInSectionsAtBlankLines) {
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "paragraph " + std::to_string(i) + "\nwith a second line\n\n";
  }
  TextCutting cutting;
  cutting.section_bytes = 200;
  const Texts sections = text_documents(text, cutting);
  EXPECT_GT(sections.size(), 5U);
  std::string joined;
  for (const std::string& section : sections) {
    EXPECT_TRUE(section.ends_with("\n\n"));
    EXPECT_TRUE(section.starts_with("paragraph"));
    joined += section;
  }
  EXPECT_EQ(joined, text);
  // Text without blank lines, and text without any newline.
  for (const std::string& hard : {std::string(100, 'x') + "\n", std::string("word ")}) {
    std::string whole;
    while (whole.size() < 5000) {
      whole += hard;
    }
    joined.clear();
    for (const std::string& section : text_documents(whole, cutting)) {
      EXPECT_LE(section.size(), 700U);
      joined += section;
    }
    EXPECT_EQ(joined, whole);
  }
}

TEST(TextCut, FindsTheLastSpaceBeforeAWord) {
  EXPECT_EQ(find_cut("aaaa bbbb cc"), 9U);
  EXPECT_EQ(find_cut("aaaa bbbb   "), 11U);  // no such position: cut between code points
  EXPECT_EQ(find_cut("aaaaaa  b"), 7U);
  EXPECT_EQ(find_cut("aaa\nbbb"), 4U);
  EXPECT_EQ(find_cut("a\xC3\xA9"), 1U);
  EXPECT_EQ(find_cut("\xE4\xB8\xAD\n\xE4\xB8\xAD"), 4U);
  EXPECT_EQ(
      find_cut("\xE3\x80\x80\n\xE4\xB8\xAD"),
      4U);  // uses the fallback, which finds the same position here
  EXPECT_TRUE(is_blank(" \t\r"));
  EXPECT_FALSE(is_blank(" x"));
}

Texts json_documents(std::string_view text, const DataOptions& options = {}) {
  const TemporaryFolder folder;
  return documents_of(write(folder, "a.jsonl", text), Format::kJson, options);
}

TEST(JsonDocuments, AreLinesOrElements) {
  const Texts expected{"one", "two \"\u00e9\" \n", ""};
  EXPECT_EQ(
      json_documents(
          "{\"text\": \"one\"}\n\n  \r\n{\"x\": [1, {}], \"text\": \"two \\\"\\u00e9\\\" "
          "\\n\"}\r\n{\"text\":\"\"}"),
      expected);
  EXPECT_EQ(
      json_documents("\xEF\xBB\xBF\n [\n{\"text\": \"one\"}, {\"text\": \n \"two \\\"\\u00e9\\\" "
                     "\\n\", \"x\": \"]}{[\\\\\"}\n,{\"text\":\"\"}]\n\n"),
      expected);
  EXPECT_EQ(json_documents(""), (Texts{}));
  EXPECT_EQ(json_documents("[]"), (Texts{}));
  EXPECT_EQ(json_documents(" \n"), (Texts{}));
  DataOptions options;
  options.text_field = "body";
  EXPECT_EQ(json_documents(R"({"body": "x", "text": 3})", options), (Texts{"x"}));
}

TEST(JsonDocuments, ErrorsNameTheLineAndColumn) {
  const auto error = [](std::string_view text) { return error_of([&] { json_documents(text); }); };
  expect_parts(error("{\"text\": \"a\"}\n{\"text\": \"b}\n"), {"a.jsonl is not JSON at line 2"});
  expect_parts(error("{\"text\": \"a\"}\n\n{\"text\" \"b\"}"), {"line 3, column 11"});
  expect_parts(error("[1]"), {"line 1", "of type number"});
  expect_parts(error("[{\"text\": \"a\"} {\"text\": \"b\"}]"), {"line 1, column 16", "comma"});
  expect_parts(error("[{\"text\": \"a\"},\n]"), {"line 2, column 1", "end after a comma"});
  expect_parts(error("[,{\"text\": \"a\"}]"), {"missing element before"});
  expect_parts(error("[{\"text\": \"a\"}"), {"not closed"});
  expect_parts(error("[{\"text\": \"a\"}] x"), {"after the array"});
  expect_parts(error("[\n{\"text\": \"a\"},\n  {\"text\": \"a"), {"line 3, column 3", "truncated"});
  expect_parts(error("[\n{\"text\": \"a\"},\n  {\"text\" \"a\"}]"), {"line 3, column 13"});
  expect_parts(error("[}"), {"not JSON"});
  expect_parts(error("{\"text\": \"a\", \"text\": \"b\"}"), {"line 1", "twice"});
  expect_parts(error(std::string(100000, '[')), {"a.jsonl"});
  expect_parts(error(R"({"text": null})"), {"line 1", "\"text\" is of type null"});
  expect_parts(
      error(R"({"txt": "a", "id": 3})"),
      {"line 1 has no field \"text\"", "Did you mean 'txt'?", "id, txt", "data.text_field"});
  expect_parts(error(R"({"instruction": "a", "output": "b"})"), {"data.prompt=alpaca"});
  expect_parts(error("{}"), {"Its fields: none"});
}

TEST(JsonDocuments, MakePairs) {
  DataOptions options;
  options.prompt = Prompt::kPairs;
  options.instruction_field = "prompt";
  options.output_field = "completion";
  EXPECT_EQ(
      json_documents(
          "{\"prompt\": \"one two\", \"completion\": \"2 1\", \"input\": \"x\"}\n"
          "{\"prompt\": \"\", \"completion\": \"b\"}",
          options),
      (Texts{"one two|2 1", "b"}));
  const auto error = [&](std::string_view text) {
    return error_of([&] { json_documents(text, options); });
  };
  expect_parts(error(R"({"prompt": "a"})"), {"no field \"completion\"", "data.output_field"});
  expect_parts(error(R"({"completion": "a"})"), {"\"prompt\"", "data.instruction_field"});
}

TEST(JsonDocuments, MakeAlpacaPrompts) {
  DataOptions options;
  options.prompt = Prompt::kAlpaca;
  const Texts texts = json_documents(
      "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n"
      "{\"instruction\": \"Hi.\", \"input\": null, \"output\": \"Ho.\"}\n"
      "{\"instruction\": \"I\", \"instances\": [{\"input\": \"\", \"output\": \"a\"}, {\"output\": "
      "\"b\"}]}",
      options);
  ASSERT_EQ(texts.size(), 4U);
  EXPECT_EQ(
      texts[0],
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:|3");
  EXPECT_EQ(
      texts[1],
      "Below is an instruction that describes a task. Write a response that appropriately "
      "completes the request.\n\n### Instruction:\nHi.\n\n### Response:|Ho.");
  EXPECT_TRUE(texts[3].ends_with("### Response:|b"));
  const auto error = [&](std::string_view text) {
    return error_of([&] { json_documents(text, options); });
  };
  expect_parts(error(R"({"instruction": "a"})"), {"no field \"output\"", "data.output_field"});
  expect_parts(error(R"({"instruction": "a", "output": 3})"), {"\"output\" is of type number"});
  expect_parts(error(R"({"instruction": "a", "instances": [3]})"), {"instance 1"});
}

TEST(JsonDocuments, InvalidUtf8IsToldOrReplaced) {
  const std::string text = "{\"text\": \"a\"}\n{\"text\": \"caf\xE9\"}\n";
  expect_parts(
      error_of([&] { json_documents(text); }),
      {"a.jsonl, line 2, byte 14", "0xe9", "iconv", "data.invalid_utf8=replace"});
  DataOptions options;
  options.invalid_utf8 = InvalidUtf8::kReplace;
  EXPECT_EQ(json_documents(text, options), (Texts{"a", "caf\uFFFD"}));
  const TemporaryFolder folder;
  const auto path = write(folder, "b.txt", "one\ntwo\n  \xC3( x");
  expect_parts(
      error_of([&] { documents_of(path, Format::kText); }), {"b.txt, line 3, byte 3", "0xc3"});
  EXPECT_EQ(documents_of(path, Format::kText, options), (Texts{"one\ntwo\n  \uFFFD( x"}));
}

Texts table_documents(
    std::string_view text, DataOptions options = {}, Format format = Format::kCsv) {
  const TemporaryFolder folder;
  return documents_of(write(folder, "a.csv", text), format, options);
}

TEST(TableDocuments, AreRfc4180) {
  EXPECT_EQ(
      table_documents("\xEF\xBB\xBFid,text\r\n1,plain \"quoted\" text\r\n\r\n2,\"a, "
                      "\"\"b\"\"\r\nc\n\nd\"\n3,\n4,"
                      "\"\"\n5,last"),
      (Texts{"plain \"quoted\" text", "a, \"b\"\nc\n\nd", "", "", "last"}));
  EXPECT_EQ(table_documents("text\n\"x\"\n"), (Texts{"x"}));
  EXPECT_EQ(table_documents("\"text\"\nx\n"), (Texts{"x"}));
  EXPECT_EQ(table_documents(""), (Texts{}));
  EXPECT_EQ(table_documents("text\n"), (Texts{}));
  DataOptions options;
  options.text_field = "b c";
  EXPECT_EQ(
      table_documents("a\tb c\n1,2\t\"x\ty\"\n3\tz,\n", options, Format::kTsv),
      (Texts{"x\ty", "z,"}));
}

TEST(TableDocuments, TakePromptColumns) {
  DataOptions options;
  options.prompt = Prompt::kAlpaca;
  const Texts texts = table_documents("output,instruction\n3,Add.\n", options);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_TRUE(texts[0].ends_with("Add.\n\n### Response:|3")) << texts[0];
  expect_parts(
      error_of([&] { table_documents("output,instructions\n3,Add.\n", options); }),
      {"Did you mean 'instructions'?", "data.instruction_field"});
  const TemporaryFolder folder;
  const auto path = write(folder, "a.txt", "x");
  expect_parts(
      error_of([&] { documents_of(path, Format::kText, options); }, ErrorKind::kConfig),
      {"plain text", "JSON lines"});
}

TEST(TableDocuments, ErrorsNameLineAndField) {
  const auto error = [](std::string_view text) { return error_of([&] { table_documents(text); }); };
  expect_parts(error("text,b\n1,2\n1,2,3\n"), {"a.csv, line 3", "has 3 fields", "header has 2"});
  expect_parts(error("text,b\n\"1\n2\",3\n1\n"), {"line 4", "has 1 fields"});
  expect_parts(error("text\n\"abc\nd\n"), {"line 2", "not closed"});
  expect_parts(error("text,b\nx,\"abc\"d\n"), {"line 2", "field 2", "closing quote"});
  expect_parts(error("sentence,label\nx,1\n"), {"line 1", "no field \"text\"", "sentence, label"});
  expect_parts(error("sentence\nx\n"), {"set data.text_field=sentence"});
  expect_parts(error("text;label\nx;1\n"), {"another delimiter"});
  expect_parts(error("text,text\nx,1\n"), {"twice"});
}

TEST(RealFiles, AreReadWhole) {
  SKIP_WITHOUT_SHARED_DATA("sst2/dev.tsv");
  DataOptions options;
  options.text_field = "sentence";
  const Texts sentences = documents_of(shared_data() / "sst2/dev.tsv", Format::kTsv, options);
  const std::string raw = read_file(shared_data() / "sst2/dev.tsv");
  EXPECT_EQ(sentences.size(), static_cast<size_t>(std::count(raw.begin(), raw.end(), '\n')) - 1);
  options.prompt = Prompt::kAlpaca;
  const Texts tasks =
      documents_of(shared_data() / "alpaca/seed_tasks.jsonl", Format::kJson, options);
  EXPECT_GE(tasks.size(), 175U);
  const std::string shakespeare = read_file(shared_data() / "shakespeare/input.txt");
  EXPECT_EQ(
      documents_of(shared_data() / "shakespeare/input.txt", Format::kText), (Texts{shakespeare}));
}

}  // namespace documents_test
}  // namespace lockstep::data
