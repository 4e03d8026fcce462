// Tests of reading and encoding preference data.
#include "data/preferences.h"

#include "data/loader.h"
#include "data/token_dataset.h"
#include "data_testing.h"

namespace lockstep::data {
namespace preferences_test {

using Texts = std::vector<std::string>;
constexpr auto kPairs = Judged::kInPairs, kSingly = Judged::kSingly;

Preferences read(const std::filesystem::path& path, Judged judged = kPairs) {
  const Texts words{path.string()};
  return read_preferences(words, Format::kAuto, "data.train", judged);
}

/// Returns "prompt|answer|rejected" for pairs, or "prompt|answer|+" for single answers.
Texts shown(const Preferences& rows, Judged judged = kPairs) {
  Texts result;
  for (const PreferenceRow& row : rows.rows) {
    const std::string last = judged == kPairs ? row.rejected : row.is_good ? "+" : "-";
    result.push_back(row.prompt + "|" + row.answer + "|" + last);
  }
  return result;
}

/// Returns "prompt|answer" decoded from bytes, with "$" for the end and "^" for the begin of text.
Texts shown(const std::vector<EncodedAnswer>& answers) {
  Texts result;
  for (const EncodedAnswer& answer : answers) {
    std::string text;
    for (const auto* ids : {&answer.prompt, &answer.answer}) {
      for (const int32_t id : *ids) {
        text += id == 256 ? '$' : id == 257 ? '^' : static_cast<char>(id);
      }
      text += ids == &answer.prompt ? "|" : "";
    }
    result.push_back(text);
  }
  return result;
}

TEST(Preferences, AreReadFromTablesAndJson) {
  const TemporaryFolder folder;
  const auto json = write(
      folder,
      "a.jsonl",
      "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\", \"score\": 3}\n\n"
      "{\"prompt\": \"\", \"chosen\": \"x\", \"rejected\": \"y\"}\n");
  EXPECT_EQ(shown(read(json)), (Texts{"p|c|r", "|x|y"}));
  EXPECT_EQ(read(json).place(read(json).rows[1]), json.string() + ", line 3");
  const auto csv = write(folder, "a.csv", "rejected,prompt,chosen\nr,\"p, q\",c\n");
  EXPECT_EQ(shown(read(csv)), (Texts{"p, q|c|r"}));
}

Preferences read_chats(const std::filesystem::path& path, Judged judged = kPairs) {
  const Texts words{path.string()};
  return read_preferences(words, Format::kAuto, "data.train", judged, [] {
    return std::make_shared<ChatTemplate>(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{{ 'think' if messages | length > 1 }}{% endif "
        "%}",
        "a test",
        nlohmann::ordered_json::object());
  });
}

/// Matches TRL's apply_chat_template and extract_prompt. The template writes an extra word in the
/// generation prompt that is not part of an existing answer.
TEST(Preferences, MayBeMessages) {
  const TemporaryFolder folder;
  const std::string ask = R"({"role": "user", "content": "q"})";
  const auto say = [](const std::string& text) {
    return R"({"role": "assistant", "content": ")" + text + "\"}";
  };
  const auto json = write(
      folder,
      "a.jsonl",
      R"({"prompt": [)" + ask + R"(], "chosen": [)" + say("c") + R"(], "rejected": [)" + say("r") +
          "]}\n" + R"({"chosen": [)" + ask + "," + say("c") + R"(], "rejected": [)" + ask + "," +
          say("d") + "]}\n" + R"({"prompt": [)" + ask + "," + say("a") + "," + ask +
          R"(], "chosen": [)" + say("c") + R"(], "rejected": [)" + say("r") + "]}\n" +
          R"({"prompt": "p", "chosen": "x", "rejected": "y"})" + "\n");
  const Preferences rows = read_chats(json);
  EXPECT_EQ(
      shown(rows),
      (Texts{
          "[user]q;[assistant]|c;|r;",
          "[user]q;[assistant]|c;|d;",
          "[user]q;[assistant]a;[user]q;[assistant]|c;|r;",
          "p|x|y"}));
  EXPECT_TRUE(rows.rows[0].is_chat);
  EXPECT_FALSE(rows.rows[3].is_chat);

  const auto single = write(
      folder,
      "b.jsonl",
      R"({"prompt": [)" + ask + R"(], "completion": [)" + say("c") + R"(], "label": false})" +
          "\n");
  EXPECT_EQ(shown(read_chats(single, kSingly), kSingly), (Texts{"[user]q;[assistant]|c;|-"}));
}

TEST(Preferences, OfMessagesThatAreNone) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& row) {
    const auto json = write(folder, "a.jsonl", row);
    return error_of([&] { read_chats(json); });
  };
  expect_parts(
      error(
          R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "c"}], "rejected": []})"),
      {"line 1: the field \"prompt\" is not a list of messages"});
  expect_parts(
      error(R"({"chosen": [{"role": "user", "content": "c"}], "rejected": [{"role": "user"}]})"),
      {"there is no message before the answer"});
}

/// Matches TRL's extract_prompt.
TEST(Preferences, PromptsMayBeTheSharedBeginning) {
  const TemporaryFolder folder;
  const auto json = write(
      folder,
      "a.jsonl",
      "{\"chosen\": \"The sky is blue.\", \"rejected\": \"The sky is green.\"}\n"
      "{\"chosen\": \"ab\", \"rejected\": \"abc\"}\n"
      "{\"chosen\": \"x\xC3\xA9\", \"rejected\": \"x\xC3\xA8\"}\n"
      "{\"chosen\": \"one\", \"rejected\": \"two\"}\n");
  EXPECT_EQ(
      shown(read(json)),
      (Texts{"The sky is| blue.| green.", "a|b|bc", "x|\xC3\xA9|\xC3\xA8", "|one|two"}));
}

TEST(Preferences, SingleAnswersHaveLabelsAndPairsAreTakenApart) {
  const TemporaryFolder folder;
  const auto json = write(
      folder,
      "a.jsonl",
      "{\"prompt\": \"p\", \"completion\": \"c\", \"label\": true}\n"
      "{\"prompt\": \"q\", \"completion\": \"d\", \"label\": 0}\n"
      "{\"prompt\": \"s\", \"chosen\": \"t\", \"rejected\": \"u\"}\n"
      "{\"prompt\": \"v\", \"chosen\": \"w\", \"rejected\": \"x\"}\n");
  EXPECT_EQ(
      shown(read(json, kSingly), kSingly),
      (Texts{"p|c|+", "q|d|-", "s|t|+", "v|w|+", "s|u|-", "v|x|-"}));
  const auto csv = write(folder, "a.csv", "prompt,completion,label\np,c,True\nq,d,false\n");
  EXPECT_EQ(shown(read(csv, kSingly), kSingly), (Texts{"p|c|+", "q|d|-"}));
}

TEST(Preferences, WhatIsWrongIsNamedWithItsRow) {
  const TemporaryFolder folder;
  const auto told = [&](const std::string& text, Judged judged = kPairs) {
    const auto path = write(folder, "bad.jsonl", text);
    return error_of([&] { read(path, judged); });
  };
  const std::string good = "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}\n";
  expect_parts(
      told(good + "{\"prompt\": \"p\", \"chossen\": \"c\", \"rejected\": \"r\"}\n"),
      {"bad.jsonl, line 2", "no field \"chosen\"", "Did you mean 'chossen'?"});
  expect_parts(
      told(good + "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"c\"}\n"),
      {"1 row with equal chosen and rejected answers", "bad.jsonl, line 2"});
  expect_parts(
      told("{\"prompt\": \"p\", \"chosen\": \"\", \"rejected\": \"c\"}\n"), {"empty answer"});
  expect_parts(
      told("{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"}], \"chosen\": \"a\", "
           "\"rejected\": \"b\"}\n"),
      {"\"prompt\" is a list of messages", "apply_chat_template"});
  expect_parts(told("{\"prompt\": \"p\", \"chosen\": 3, \"rejected\": \"r\"}\n"), {"type number"});
  expect_parts(told("[1]\n"), {"bad.jsonl, line 1", "type number"});
  expect_parts(told("\n"), {"contain no rows"});
  expect_parts(
      told("{\"prompt\": \"p\", \"completion\": \"c\", \"label\": \"good\"}\n", kSingly),
      {"the label is \"good\""});
  const auto text = write(folder, "a.txt", "x\n");
  expect_parts(error_of([&] { read(text); }, ErrorKind::kConfig), {"plain text"});
}

TEST(Preferences, AnswersEndAndPromptsAreWhatBothBeginWith) {
  Preferences rows;
  rows.rows = {{"ab", "cd", "e"}, {"long prompt", "x", "y"}, {"", "f", "g"}};
  Encoder encoder = byte_encoder();
  encoder.begin = 257;
  const EncodedPreferences found = encode_preferences(rows, encoder, {.length = 5}, kPairs);
  EXPECT_EQ(shown(found.answers), (Texts{"^ab|cd$", "^ab|e$", "^|f$", "^|g$"}));
  EXPECT_EQ(found.dropped, 1);
  EXPECT_EQ(found.cut, 1);
  EXPECT_EQ(
      found.roles,
      (std::vector{RowRole::kChosen, RowRole::kRejected, RowRole::kChosen, RowRole::kRejected}));
  // A chat template writes the begin and end tokens itself.
  rows.rows = {{"ab", "cd", "e", /*is_good=*/true, /*is_chat=*/true}};
  EXPECT_EQ(
      shown(encode_preferences(rows, encoder, {.length = 5}, kPairs).answers),
      (Texts{"ab|cd", "ab|e"}));
  // A token across the boundary of prompt and answer belongs to the answer.
  encoder.encode = [](std::string_view text) {
    return text == "ab"    ? std::vector<int32_t>{1, 2}
           : text == "abc" ? std::vector<int32_t>{1, 3}
                           : std::vector<int32_t>{1, 2, 4, 256};
  };
  rows.rows = {{"ab", "c", "d"}};
  const auto joined = encode_preferences(rows, encoder, {.length = 9}, kPairs).answers;
  EXPECT_EQ(joined[0].prompt, (std::vector<int32_t>{257, 1}));
  EXPECT_EQ(joined[0].answer, (std::vector<int32_t>{3, 256}));
  EXPECT_EQ(joined[1].answer, (std::vector<int32_t>{2, 4, 256}));
  encoder.end.reset();
  expect_parts(
      error_of([&] { encode_preferences(rows, encoder, {.length = 9}, kPairs); }),
      {"no EOS token"});
}

TEST(Preferences, AreCutAtEitherEnd) {
  const EncodedAnswer row{{1, 2, 3}, {4, 5, 6}};
  const auto cut = [&](const AnswerLimits& limits) {
    const EncodedAnswer answer = cut_answer(row, limits);
    return std::pair(answer.prompt, answer.answer);
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(cut({.length = 6}), std::pair(Ids({1, 2, 3}), Ids({4, 5, 6})));
  EXPECT_EQ(cut({.length = 4}), std::pair(Ids({1, 2, 3}), Ids({4})));
  EXPECT_EQ(cut({.length = 4, .kept = TruncationSide::kEnd}), std::pair(Ids({3}), Ids({4, 5, 6})));
  EXPECT_EQ(cut({.length = 2, .kept = TruncationSide::kEnd}), std::pair(Ids(), Ids({5, 6})));
  EXPECT_EQ(cut({.length = 4, .prompt = 2}), std::pair(Ids({2, 3}), Ids({4, 5})));
}

TEST(Preferences, AnswersAreMismatchedInBlocks) {
  std::vector<EncodedAnswer> answers;
  for (int32_t i = 0; i < 5; ++i) {
    answers.push_back({{'a' + i}, {'0' + i}});
  }
  EXPECT_EQ(shown(mismatched(answers, 3)), (Texts{"a|2", "b|0", "c|1", "d|4", "e|3"}));
  EXPECT_EQ(shown(mismatched(answers, 2)), (Texts{"a|1", "b|0", "c|4", "d|2", "e|3"}));
  EXPECT_EQ(shown(mismatched(answers, 1)), shown(mismatched(answers, 2)));
  answers.resize(1);
  expect_parts(error_of([&] { mismatched(answers, 3); }), {"only one row"});
}

/// Both answers of a pair are in the same micro-batch, which records their roles.
TEST(Preferences, PairsStayTogether) {
  const TemporaryFolder folder;
  Preferences rows;
  rows.rows = {{"ab", "cd", "e"}, {"f", "g", "hi"}, {"k", "l", "m"}};
  const Encoder encoder = byte_encoder();
  const AnswerLimits limits{.length = 8};
  const EncodedPreferences encoded = encode_preferences(rows, encoder, limits, kPairs);
  const auto path = write_answers(encoded.answers, limits, folder.path(), encoder, 259, 258);
  EXPECT_EQ(write_answers(encoded.answers, limits, folder.path(), encoder, 259, 258), path);
  for (const bool learns_prompts : {false, true}) {
    const SequenceView view(TokenDataset::open(path), 8, {encoded.roles, 2, learns_prompts});
    EXPECT_EQ(view.size(), 3);
    EXPECT_EQ(view.rows(), 6);
    const MicroBatch batch = make_micro_batch(view, {{2, 7}, {0, 8}});
    EXPECT_EQ(batch.rows, 4);
    EXPECT_EQ(batch.samples, (std::vector<int64_t>{14, 15, 16, 17}));
    EXPECT_EQ(batch.groups, (std::vector<int64_t>{0, 0, 1, 1}));
    EXPECT_EQ(batch.roles[2], RowRole::kChosen);
    EXPECT_EQ(batch.roles[3], RowRole::kRejected);
    const auto labels = std::vector<int64_t>(batch.labels.begin() + 16, batch.labels.begin() + 32);
    const int64_t a = learns_prompts ? 'a' : -100, b = learns_prompts ? 'b' : -100;
    EXPECT_EQ(
        labels,
        (std::vector<int64_t>{
            a, b, 'c', 'd', 256, -100, -100, -100, -100, -100, 'e', 256, -100, -100, -100, -100}));
    EXPECT_EQ(
        batch.prompts,
        learns_prompts ? (std::vector<int64_t>{1, 0, 2, 0}) : std::vector<int64_t>{});
    const MicroBatch empty = make_micro_batch(view, {});
    EXPECT_EQ(empty.roles, std::vector{RowRole::kPlain});
    EXPECT_TRUE(empty.draws.empty());
  }
}

}  // namespace preferences_test
}  // namespace lockstep::data
