// Reads and encodes question-answer rows.
#include "data/questions.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "data/raw_label.h"
#include "data/record_fields.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace {

constexpr const char* kExampleQuestion =
    "rows need question and answer; set other names with unlearning.question_key and "
    "unlearning.answer_key";

std::string without_space_around(std::string_view text) {
  return trimmed(text).value_or("");
}

std::string llama3_message(std::string_view role, std::string_view text) {
  return fmt::format(
      "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, without_space_around(text));
}

std::string qwen_message(std::string_view role, std::string_view text) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, text);
}

/// Returns the tokenizer's chat template, from its own file or tokenizer_config.json. May be empty.
std::string chat_template_of(const text::Tokenizer& tokenizer) {
  const std::map<std::string, std::string> files = tokenizer.files();
  if (const auto own = files.find("chat_template.jinja"); own != files.end()) {
    return own->second;
  }
  const auto config = files.find("tokenizer_config.json");
  if (config == files.end()) {
    return "";
  }
  const nlohmann::json json = parse_json_line(config->second);
  const auto found = json.find("chat_template");
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Encodes text with the tokenizer's BOS. No BOS is added if the form is a chat template, which
/// contains one.
std::vector<int32_t> encode_as(
    const QuestionTemplate& form, const Encoder& encoder, const std::string& text) {
  std::vector<int32_t> ids = encoder.encode(text);
  if (encoder.begin && form.form == QuestionTemplate::Form::kTags) {
    ids.insert(ids.begin(), *encoder.begin);
  }
  return ids;
}

}  // namespace

Questions read_questions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const QuestionKeys& keys) {
  Questions result;
  result.files = read_records(
      words,
      format,
      key,
      "questions",
      keys.remedy.empty() ? kExampleQuestion : keys.remedy.c_str(),
      [&](const RecordFields& fields, size_t file) {
        Question row;
        row.question = fields.text(keys.question);
        row.answers = fields.texts(keys.answer);
        row.is_list = fields.find(keys.answer).is_array();
        row.alternate = keys.alternate.empty() ? "" : fields.text(keys.alternate);
        row.file = file;
        row.line = fields.line();
        result.rows.push_back(std::move(row));
      });
  if (result.rows.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the files contain no rows ({} files)", key, result.files.size()),
        kExampleQuestion);
  }
  return result;
}

Questions read_completions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& prefix_key,
    const std::string& text_key) {
  Questions result;
  constexpr const char* kExample =
      "each record needs a text in the field unlearning.text_key, and may have a prefix in the "
      "field unlearning.prefix_key";
  const auto take = [&](const RecordFields& fields, size_t file) {
    Question& row = result.rows.emplace_back();
    row.question = fields.has(prefix_key) ? fields.text(prefix_key) : "";
    row.answers = {fields.text(text_key)};
    row.file = file;
    row.line = fields.line();
  };
  result.files = read_records(words, format, key, "texts", kExample, take);
  if (result.rows.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{}: the files contain no texts", key), kExample);
  }
  return result;
}

std::vector<std::string> read_texts(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& text_key) {
  std::vector<std::string> texts;
  constexpr const char* kExample = "each record needs a text in the field unlearning.text_key";
  read_records(words, format, key, "texts", kExample, [&](const RecordFields& fields, size_t) {
    texts.push_back(fields.text(text_key));
  });
  if (texts.empty()) {
    throw Error(ErrorKind::kData, fmt::format("{}: the files contain no texts", key), kExample);
  }
  return texts;
}

std::vector<std::string> read_refusals(const std::filesystem::path& path) {
  const std::string text = read_file(path, ErrorKind::kData);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (auto line = trimmed(std::string_view(text).substr(begin, end - begin))) {
      lines.push_back(std::move(*line));
    }
    begin = end + 1;
  }
  if (lines.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("unlearning.refusals: {} has no lines", path.string()),
        "write one refusal per line, such as: I don't know.");
  }
  return lines;
}

std::string QuestionTemplate::prompt(std::string_view question) const {
  switch (form) {
    case Form::kLlama3:
      return fmt::format(
                 "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge "
                 "Date: December 2023\nToday Date: {}\n\n{}<|eot_id|>",
                 date,
                 without_space_around(system)) +
             llama3_message("user", question) + "<|start_header_id|>assistant<|end_header_id|>\n\n";
    case Form::kQwen:
      return qwen_message("system", system) + qwen_message("user", question) +
             "<|im_start|>assistant\n";
    case Form::kTags:
      break;
  }
  return user_start + std::string(question) + user_end + answer_start;
}

std::string QuestionTemplate::whole(std::string_view question, std::string_view answer) const {
  switch (form) {
    case Form::kLlama3:
      return prompt(question) + without_space_around(answer) + "<|eot_id|>";
    case Form::kQwen:
      return prompt(question) + std::string(answer) + "<|im_end|>\n";
    case Form::kTags:
      break;
  }
  return prompt(question) + std::string(answer);
}

QuestionTemplate::Form chat_form(const text::Tokenizer& tokenizer) {
  const std::string text = chat_template_of(tokenizer);
  if (text.find("<|start_header_id|>") != std::string::npos &&
      text.find("Cutting Knowledge Date") != std::string::npos) {
    return QuestionTemplate::Form::kLlama3;
  }
  if (text.find("<|im_start|>") != std::string::npos &&
      text.find("You are Qwen") != std::string::npos) {
    return QuestionTemplate::Form::kQwen;
  }
  throw Error(
      ErrorKind::kConfig,
      text.empty() ? "unlearning.chat_template=true, but the tokenizer has no chat_template"
                   : "unlearning.chat_template=true: the tokenizer's chat_template is not "
                     "supported; only those of Llama 3.1, Llama 3.2 and Qwen 2.5 are",
      "set it to false, and set unlearning.user_start, user_end and answer_start");
}

EncodedAnswer encode_question(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length) {
  if (!encoder.end) {
    throw Error(
        ErrorKind::kData,
        "the tokenizer has no EOS token, which every answer ends with",
        "set it in tokenizer_config.json: \"eos_token\"");
  }
  std::vector<int32_t> ids = encode_as(form, encoder, form.whole(question, answer));
  const size_t most = static_cast<size_t>(length) - 1;
  if (ids.size() > most) {
    ids.resize(ids.back() == *encoder.end && ids.size() == most + 1 ? ids.size() : most);
  }
  if (ids.empty() || ids.back() != *encoder.end) {
    ids.push_back(*encoder.end);
  }
  const std::vector<int32_t> prompt = encode_as(form, encoder, form.prompt(question));
  const size_t count = std::min(prompt.size(), ids.size());
  const auto count_end = ids.begin() + static_cast<std::ptrdiff_t>(count);
  const bool is_counted =
      form.counts_prompt || prompt.size() >= ids.size();  // or no token is left for the answer
  const auto part =
      is_counted ? count_end : std::mismatch(ids.begin(), count_end, prompt.begin()).first;
  return {{ids.begin(), part}, {part, ids.end()}};
}

std::vector<int32_t> encode_prompt(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length) {
  if (!form.counts_prompt) {
    return encode_question(question, answer, form, encoder, length).prompt;
  }
  std::vector<int32_t> prompt = encode_as(form, encoder, form.prompt(question));
  prompt.resize(std::min(prompt.size(), static_cast<size_t>(length)));
  return prompt;
}

EncodedAnswer encode_completion(
    std::string_view prompt,
    std::string_view between,
    std::string_view text,
    const Encoder& encoder,
    int64_t length) {
  const auto encoded = [&](const std::string& words) {
    std::vector<int32_t> ids = encoder.encode(words);
    if (encoder.begin) {
      ids.insert(ids.begin(), *encoder.begin);
    }
    return ids;
  };
  const std::string_view space = prompt.empty() || text.empty() ? "" : between;
  std::vector<int32_t> ids = encoded(fmt::format("{}{}{}", prompt, space, text));
  const size_t before = encoded(std::string(prompt)).size();
  ids.resize(std::min(ids.size(), before + static_cast<size_t>(length)));
  const auto part =
      ids.begin() + static_cast<std::ptrdiff_t>(std::min(std::max<size_t>(before, 1), ids.size()));
  return {{ids.begin(), part}, {part, ids.end()}};
}

std::vector<EncodedAnswer> encode_texts(
    const std::vector<std::string>& texts,
    const text::Tokenizer& tokenizer,
    const Encoder& encoder,
    int64_t length) {
  const std::vector<int32_t> all = encoder.encode(fmt::format("{}", fmt::join(texts, "\n\n")));
  const size_t most = static_cast<size_t>(length) - 1;
  std::vector<EncodedAnswer> rows;
  for (size_t begin = 0; begin < all.size(); begin += most) {
    const std::span<const int32_t> piece(all.data() + begin, std::min(most, all.size() - begin));
    std::vector<int32_t> ids = encoder.encode(tokenizer.decode(piece));
    ids.resize(std::min(ids.size(), most));
    if (encoder.begin) {
      ids.insert(ids.begin(), *encoder.begin);
    }
    if (ids.size() > 1) {
      rows.push_back({{ids.front()}, {ids.begin() + 1, ids.end()}});
    }
  }
  return rows;
}

}  // namespace lockstep::data
