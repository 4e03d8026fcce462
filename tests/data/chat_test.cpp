// Tests of chat templates applied to messages and of their loss masks.
#include "data/chat.h"

#include "data/prepare.h"
#include "data/sequences.h"
#include "data/token_dataset.h"
#include "data/tokenize.h"
#include "data_testing.h"

namespace lockstep::data {
namespace chat_test {

using Json = nlohmann::ordered_json;

constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ "
    "m.content "
    "}}<end>{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}{% endfor %}";
/// Omits the reasoning of all but the last message and ends the generation prompt with an open
/// <think>.
constexpr const char* kThinking =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think>{{ "
    "m.reasoning_content }}</think>{% endif %}{{ m.content }}<end>\n{% endfor %}{% if "
    "add_generation_prompt %}<assistant><think>{% endif %}";

ChatTemplate make(const char* source) {
  return ChatTemplate(source, "a test", {{"bos_token", "<s>"}, {"eos_token", "<end>"}});
}

Chat chat_of(const char* messages) {
  return read_chat({{"messages", Json::parse(messages)}}, "messages", "a test");
}

/// Returns the text with each trained span in brackets.
std::string marked(const ChatText& text) {
  std::string out;
  size_t at = 0;
  for (const jinja::TextSpan& span : text.learned) {
    out += text.text.substr(at, span.begin - at) + "[" +
           text.text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return out + text.text.substr(at);
}

constexpr const char* kTwoTurns = R"([
  {"role": "system", "content": "S"}, {"role": "user", "content": "a"},
  {"role": "assistant", "content": " b\n", "reasoning_content": "why"},
  {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "so"}])";

TEST(Chat, TheAssistantsWordsAreLearned) {
  const Chat chat = chat_of(kTwoTurns);
  const ChatTemplate plain = make(kPlain);
  EXPECT_EQ(
      marked(plain.render(chat, ChatLoss::kAssistant)),
      "<s><system>S<end>\n<user>a<end>\n<assistant>[b<end>]\n<user>c<end>\n<assistant>[d<end>]\n");
  EXPECT_EQ(
      marked(plain.render(chat, ChatLoss::kLast)),
      "<s><system>S<end>\n<user>a<end>\n<assistant>b<end>\n<user>c<end>\n<assistant>[d<end>]\n");
  EXPECT_EQ(
      marked(plain.render(chat_of(R"([{"role": "user", "content": "a"}])"), ChatLoss::kAll)),
      "[<s><user>a<end>\n]");
  EXPECT_EQ(
      marked(make(kMarked).render(chat, ChatLoss::kAssistant)),
      "<system>S<end><user>a<end><assistant>[ b\n<end>]<user>c<end><assistant>[d<end>]");
  EXPECT_EQ(
      marked(make(kMarked).render(chat, ChatLoss::kLast)),
      "<system>S<end><user>a<end><assistant> b\n<end><user>c<end><assistant>[d<end>]");
}

TEST(Chat, ATemplateMayDropThoughtsOfEarlierMessages) {
  EXPECT_EQ(
      marked(make(kThinking).render(chat_of(kTwoTurns), ChatLoss::kAssistant)),
      "<system>S<end>\n<user>a<end>\n<assistant>[ b\n<end>]\n<user>c<end>\n<assistant><think>["
      "so</think>d<end>]\n");
}

TEST(Chat, AsksForTheNextMessageAndKnowsWhatEndsOne) {
  EXPECT_EQ(
      make(kPlain).prompt(chat_of(R"([{"role": "user", "content": "a"}])")),
      "<s><user>a<end>\n<assistant>");
  EXPECT_EQ(make(kPlain).end_of_turn(), "<end>");
  EXPECT_NE(make(kPlain).fingerprint(), make(kMarked).fingerprint());
}

TEST(Chat, RecordsOfEveryForm) {
  const auto read = [](const char* record) {
    return read_chat(Json::parse(record), "messages", "rows.jsonl, line 3");
  };
  const Json wanted = Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_EQ(
      read(
          R"({"system": "S", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})")
          .messages,
      wanted);
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "a"}]})").messages.size(), 1U);
  const Chat texts = read(R"({"prompt": "a", "completion": "b", "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(texts.messages[1], (Json{{"role", "assistant"}, {"content", "b"}}));
  EXPECT_EQ(texts.first_learned, 1U);
  EXPECT_EQ(texts.tools[0]["name"], "f");
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THROW(
      read((R"({"prompt": "a", "completion": "b", "tools": ")" + nested + "\"}").c_str()), Error);
  const Chat lists = read(
      R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}, {"role": "user", "content": "a"}],
          "completion": [{"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(
      marked(make(kPlain).render(lists, ChatLoss::kAssistant)),
      "<s><user>q<end>\n<assistant>r<end>\n<user>a<end>\n<assistant>[b<end>]\n");
  EXPECT_EQ(
      marked(make(kMarked).render(lists, ChatLoss::kAssistant)),
      "<user>q<end><assistant>r<end><user>a<end><assistant>[b<end>]");
}

TEST(Chat, WhatIsWrongNamesTheRow) {
  const auto error = [](const char* record) {
    return error_of([&] { read_chat(Json::parse(record), "messages", "rows.jsonl, line 3"); });
  };
  expect_parts(error(R"({"text": "a"})"), {"rows.jsonl, line 3 has no field \"messages\"", "text"});
  expect_parts(error(R"({"messages": "a"})"), {"line 3: \"messages\" is of type string"});
  expect_parts(
      error(R"({"messages": [{"content": "a"}]})"), {"message 1 of \"messages\" has no role"});
  expect_parts(
      error(R"({"conversations": [{"from": "alien", "value": "a"}]})"), {"from \"alien\""});
  expect_parts(
      error(R"({"conversations": [{"from": "human"}]})"), {"has no \"from\" or \"value\""});
}

DataOptions options_of(const TemporaryFolder& folder) {
  DataOptions options;
  options.prompt = Prompt::kChat;
  options.chat = std::make_shared<ChatTemplate>(make(kPlain));
  options.cache_dir = folder.path() / "cache";
  return options;
}

TEST(Chat, ARowWithoutAnAssistantIsAnErrorWithFileAndLine) {
  const TemporaryFolder folder;
  const auto path = write(
      folder,
      "rows.jsonl",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
      "\"content\": \"b\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  DataOptions options = options_of(folder);
  options.train = {path.string()};
  expect_parts(
      error_of([&] { prepare_data(options, byte_encoder()); }),
      {"rows.jsonl, line 2: there is no assistant message", "data.chat_loss=all"});
  options.train = {write(folder, "rows.csv", "messages\na\n").string()};
  expect_parts(
      error_of([&] { prepare_data(options, byte_encoder()); }, ErrorKind::kConfig),
      {"requires lists of messages"});
}

TEST(Chat, RowsHaveTheMaskOfTheTemplate) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) {  // more than one word of the bit mask
    lines += "{\"messages\": [{\"role\": \"user\", \"content\": \"" + std::string(i % 5 + 1, 'q') +
             "\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n";
  }
  DataOptions options = options_of(folder);
  options.train = {write(folder, "rows.jsonl", lines).string()};
  const auto set = TokenDataset::open(prepare_data(options, byte_encoder()).train);
  EXPECT_TRUE(set->has_hidden());
  set->verify();
  EXPECT_EQ(set->documents(), 40);
  const SequenceView view(set, 64, Packing::kPerDocument);
  for (const int64_t row : {0, 7, 39}) {
    std::vector<int64_t> ids(64), labels(64);
    const auto count = static_cast<size_t>(view.read(row, ids, labels));
    std::string text, learned;
    for (size_t i = 0; i < count; ++i) {
      text += static_cast<char>(ids[i]);
      learned += labels[i] == kIgnored ? "" : std::string(1, static_cast<char>(labels[i]));
    }
    EXPECT_EQ(
        text,
        "<s><user>" + std::string(static_cast<size_t>(row % 5 + 1), 'q') +
            "<end>\n<assistant>A<end>\n");
    EXPECT_EQ(learned, "A<end>") << text;
  }
}

TEST(Chat, ATokenThatIsLearnedInPartIsLearned) {
  const TemporaryFolder folder;
  DataOptions options = options_of(folder);
  const auto path = write(
      folder,
      "rows.jsonl",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
      "\"content\": \"bb\"}]}\n");
  Encoder pairs = byte_encoder();  // two bytes per token
  pairs.encode = [](std::string_view text) {
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size(); at += 2) {
      ids.push_back(text[at] * 256 + (at + 1 < text.size() ? text[at + 1] : 0));
    }
    return ids;
  };
  const std::vector<InputFile> inputs{{path, Format::kJson}};
  const auto rows = encode_first(inputs, options, pairs, 0, 9);
  ASSERT_EQ(rows.size(), 1U);
  std::string learned;
  for (size_t i = 0; i < rows[0].ids.size(); ++i) {
    if (rows[0].hidden[i] == 0) {
      learned += {static_cast<char>(rows[0].ids[i] / 256), static_cast<char>(rows[0].ids[i] % 256)};
    }
  }
  const std::string text = "<s><user>a<end>\n<assistant>bb<end>\n";
  const size_t begin = text.find("bb") / 2 * 2, end = (text.find("\n", begin) + 1) / 2 * 2;
  EXPECT_EQ(learned, text.substr(begin, end - begin));
  EXPECT_TRUE(encode_first(inputs, options, pairs, 1, 9).empty());
}

TEST(Chat, OfTextsOnlyWhatIsShownIsEncoded) {
  const TemporaryFolder folder;
  DataOptions options = options_of(folder);
  options.prompt = Prompt::kNone;
  const std::string part(kTextPart / 4, 'a');
  const auto path = write(
      folder,
      "long.txt",
      part + "\n" + part + "\n" + part + "\n" + part + "\n" + part + "\n" + part);
  const auto next = write(folder, "next.txt", "b");
  size_t bytes = 0;
  Encoder counting = byte_encoder();
  counting.encode = [&bytes, plain = counting.encode](std::string_view text) {
    bytes += text.size();
    return plain(text);
  };
  const std::vector<InputFile> inputs{{path, Format::kText}, {next, Format::kText}};
  EXPECT_EQ(encode_first(inputs, options, counting, 0, 9).size(), 2U);
  EXPECT_LE(bytes, 2 * kTextPart);
  bytes = 0;
  EXPECT_EQ(encode_first(inputs, options, counting, 1, 9).size(), 1U);
  EXPECT_EQ(bytes, 1U);
}

}  // namespace chat_test
}  // namespace lockstep::data
