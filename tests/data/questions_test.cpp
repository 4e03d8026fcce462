// Tests of question-answer data for unlearning.
#include "data/questions.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/format.h"
#include "data/data_testing.h"
#include "data/loader.h"
#include "data/partners.h"
#include "data/token_dataset.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace questions_test {

std::string text_of(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    text += id < 256 ? std::string(1, static_cast<char>(id)) : fmt::format("<{}>", id);
  }
  return text;
}

TEST(Questions, AreReadByTheirFields) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{write(
                                           folder,
                                           "rows.jsonl",
                                           R"({"q": "a?", "a": ["b", "c"], "other": "d"})"
                                           "\n"
                                           R"({"q": "e?", "a": "f", "other": "g"})"
                                           "\n")
                                           .string()};
  const Questions rows =
      read_questions(words, Format::kAuto, "unlearning.forget", {"q", "a", "other"});
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(rows.rows[0].answers, (std::vector<std::string>{"b", "c"}));
  EXPECT_TRUE(rows.rows[0].is_list);
  EXPECT_FALSE(rows.rows[1].is_list);
  EXPECT_EQ(rows.rows[1].alternate, "g");
  const auto told = [&](const QuestionKeys& keys) {
    return error_of([&] { (void)read_questions(words, Format::kAuto, "unlearning.forget", keys); });
  };
  expect_parts(
      told({"q", "answer", ""}), {"line 1", "no field \"answer\"", "Its fields: a, other, q"});
  const std::vector<std::string> bad{write(
                                         folder,
                                         "bad.jsonl",
                                         R"({"question": "a", "answer": [1]})"
                                         "\n")
                                         .string()};
  expect_parts(
      error_of([&] { (void)read_questions(bad, Format::kAuto, "k", {}); }),
      {"bad.jsonl, line 1", "list"});
}

TEST(Questions, RefusalsAreLines) {
  const TemporaryFolder folder;
  const auto path = write(folder, "idk.jsonl", "No idea.\n\n  Beyond me. \n");
  EXPECT_EQ(read_refusals(path), (std::vector<std::string>{"No idea.", "Beyond me."}));
  expect_parts(
      error_of([&] { (void)read_refusals(write(folder, "none.txt", "\n \n")); }), {"no lines"});
}

TEST(QuestionTemplate, WritesConversationsAsTheirTemplatesDo) {
  QuestionTemplate form;
  EXPECT_EQ(form.whole("Who?", "Me."), "Question: Who?\nAnswer: Me.");
  form.form = QuestionTemplate::Form::kLlama3;
  form.system = "Help.";
  EXPECT_EQ(
      form.whole(" Who?", "Me. "),
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
      "December 2023\nToday Date: 10 Apr 2025\n\nHelp.<|eot_id|><|start_header_id|>user"
      "<|end_header_id|>\n\nWho?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nMe."
      "<|eot_id|>");
  form.form = QuestionTemplate::Form::kQwen;
  EXPECT_EQ(
      form.whole("Who?", "Me."),
      "<|im_start|>system\nHelp.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>"
      "assistant\nMe.<|im_end|>\n");
  EXPECT_EQ(form.whole("Who?", "Me.").find(form.prompt("Who?")), 0U);
}

TEST(QuestionTemplate, EncodesAndCutsOnTheRight) {
  Encoder encoder = byte_encoder();
  encoder.begin = 257;
  const QuestionTemplate form;
  const EncodedAnswer whole = encode_question("Who?", "Me.", form, encoder, 100);
  EXPECT_EQ(text_of(whole.prompt), "<257>Question: Who?\nAnswer: ");
  EXPECT_EQ(text_of(whole.answer), "Me.<256>");
  const EncodedAnswer cut = encode_question("Who?", "Me.", form, encoder, 26);
  EXPECT_EQ(text_of(cut.answer), "M<256>");
  EXPECT_EQ(cut.prompt.size() + cut.answer.size(), 26U);
  const EncodedAnswer none = encode_question("Who?", "Me.", form, encoder, 12);
  EXPECT_TRUE(none.answer.empty());
  EXPECT_EQ(none.prompt.size(), 12U);
  // A tokenizer that merges a space with the next letter.
  Encoder joins = encoder;
  joins.encode = [](std::string_view text) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool joined = text[i] == ' ' && i + 1 < text.size();
      ids.push_back(joined ? 1000 + text[++i] : text[i]);
    }
    return ids;
  };
  QuestionTemplate counting;
  counting.counts_prompt = true;
  const EncodedAnswer parted = encode_question("a", "Me.", form, joins, 100);
  EXPECT_EQ(text_of(parted.answer), "<1077>e.<256>");
  EXPECT_EQ(text_of(encode_question("a", "Me.", counting, joins, 100).answer), "e.<256>");
  EXPECT_EQ(encode_prompt("a", "Me.", counting, joins, 100).back(), ' ');
  EXPECT_EQ(encode_prompt("a", "Me.", form, joins, 100), parted.prompt);
  encoder.end.reset();
  expect_parts(
      error_of([&] { (void)encode_question("a", "b", form, encoder, 9); }), {"no EOS token"});
}

TEST(Texts, AreJoinedAndCut) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{
      write(folder, "texts.jsonl", "{\"t\": \"abcd\"}\n{\"t\": \"ef\"}\n").string()};
  const std::vector<std::string> texts = read_texts(words, Format::kAuto, "unlearning.forget", "t");
  EXPECT_EQ(texts, (std::vector<std::string>{"abcd", "ef"}));
  expect_parts(
      error_of([&] { (void)read_texts(words, Format::kAuto, "unlearning.forget", "text"); }),
      {"line 1", "no field \"text\""});
  // A character tokenizer loaded from a file.
  const auto path = write(
      folder,
      "tokenizer.json",
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "Ċ": 6},
          "merges": []}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "decoder": {"type": "ByteLevel"}})");
  const auto tokenizer = text::Tokenizer::load(path);
  Encoder encoder = make_encoder(tokenizer);
  const auto rows = encode_texts(texts, *tokenizer, encoder, 5);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].prompt, std::vector<int32_t>{0});
  EXPECT_EQ(rows[0].answer, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(rows[1].prompt, std::vector<int32_t>{6});
  EXPECT_EQ(rows[1].answer, (std::vector<int32_t>{6, 4, 5}));
  encoder.begin = 7;
  EXPECT_EQ(encode_texts(texts, *tokenizer, encoder, 5)[0].answer.size(), 4U);
}

TEST(Texts, GoOnWhatPrecedesThem) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{
      write(folder, "rows.jsonl", "{\"prompt\": \"ab\", \"gt\": \"cde\"}\n{\"gt\": \"fg\"}\n")
          .string()};
  const Questions found =
      read_completions(words, Format::kAuto, "unlearning.forget", "prompt", "gt");
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[0].question, "ab");
  EXPECT_EQ(found.rows[1].question, "");
  EXPECT_EQ(found.rows[1].line, 2);
  const auto told = error_of(
      [&] { (void)read_completions(words, Format::kAuto, "unlearning.forget", "prompt", "text"); });
  expect_parts(told, {"line 1", "no field \"text\""});
  const Encoder encoder = byte_encoder();
  const auto pieces = [&](std::string_view prompt, std::string_view between, int64_t length) {
    const EncodedAnswer row = encode_completion(prompt, between, "cde", encoder, length);
    return std::pair(text_of(row.prompt), text_of(row.answer));
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(pieces("ab", "", 9), Pair("ab", "cde"));
  EXPECT_EQ(pieces("ab", " ", 3), Pair("ab", " cd"));
  EXPECT_EQ(pieces("", " ", 9), Pair("c", "de"));  // the first id has no preceding context
}

TEST(PartnerRows, TakesARowOfEachPart) {
  const PartnerRows parts{.forget = 3, .alternates = 2, .retain = 5, .seed = 7};
  EXPECT_EQ(parts.size(), 3);
  EXPECT_EQ(parts.rows(), 14);
  EXPECT_EQ(parts.rows_at_once(), 3);
  std::map<int64_t, int> kept;
  for (int64_t sample = 0; sample < 3000; ++sample) {
    const Draw draw{sample % 3, sample};
    const std::vector<int64_t> rows = parts.rows_of(draw);
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0], draw.sequence);
    // The first epoch uses the first alternate answers, the next epoch the second ones.
    EXPECT_EQ(rows[1], 3 + 3 * ((sample / 3) % 2) + draw.sequence);
    EXPECT_EQ(rows, parts.rows_of(draw));
    ++kept[rows[2]];
  }
  ASSERT_EQ(kept.size(), 5U);
  for (const auto& [row, times] : kept) {
    EXPECT_GE(row, 9);
    EXPECT_NEAR(times, 600, 120);  // uniform distribution
  }
  const PartnerRows led{.forget = 3, .retain = 5, .retain_leads = true, .seed = 7};
  EXPECT_EQ(led.size(), 5);
  EXPECT_EQ(led.rows_of({4, 4})[1], 3 + 4);
  EXPECT_LT(led.rows_of({4, 4})[0], 3);
  const PartnerRows alone{.retain = 5, .retain_leads = true};
  EXPECT_EQ(alone.rows_at_once(), 1);
  EXPECT_EQ(alone.rows_of({2, 9}), std::vector<int64_t>{2});
}

TEST(PartnerRows, ComeTogetherInAMicroBatch) {
  const TemporaryFolder folder;
  std::vector<EncodedAnswer> rows;
  for (int32_t i = 0; i < 7; ++i) {
    rows.push_back({{10 + i, 20}, std::vector<int32_t>(static_cast<size_t>(1 + i % 3), 30 + i)});
  }
  AnswerRows answers;
  answers.partners = PartnerRows{.forget = 3, .retain = 4, .seed = 2};
  answers.at_once = 2;
  answers.roles = {RowRole::kForget, RowRole::kForget, RowRole::kForget};
  answers.roles.resize(7, RowRole::kRetain);
  const auto dataset = TokenDataset::open(
      write_answers(rows, {.length = 8}, folder.path(), byte_encoder(), 300, 258));
  const SequenceView view(dataset, 8, answers);
  EXPECT_EQ(view.size(), 3);
  const MicroBatch batch = make_micro_batch(view, {{2, 5}, {0, 6}});
  ASSERT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.roles[0], RowRole::kForget);
  EXPECT_EQ(batch.roles[1], RowRole::kRetain);
  EXPECT_EQ(batch.groups, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{10, 11, 12, 13}));
  EXPECT_EQ(batch.lengths[0], 5);
  EXPECT_EQ(batch.ids[0], 12);
  // Without partners, a view may contain only the first rows.
  AnswerRows first;
  first.roles.assign(3, RowRole::kForget);
  EXPECT_EQ(SequenceView(dataset, 8, first).size(), 3);
  answers.at_once = 3;
  EXPECT_NE(
      error_of([&] { SequenceView(dataset, 8, answers); }, ErrorKind::kInternal).find("roles"),
      std::string::npos);
}

}  // namespace questions_test
}  // namespace lockstep::data
