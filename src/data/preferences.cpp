// Encodes and truncates preference rows.
#include "data/preferences.h"

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/ordered_tasks.h"
#include "data/token_dataset.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kAnswersRecipe = "prompts and answers, 1";

int64_t same_at_the_beginning(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// Encodes the answers of a row. The prompt ends where their encodings start to differ.
std::vector<EncodedAnswer> encode_row_of_answers(const PreferenceRow& row, const Encoder& encoder) {
  const auto encode = [&](const std::string& text) {
    std::vector<int32_t> ids = encoder.encode(text);
    if (encoder.begin && !row.is_chat) {
      ids.insert(ids.begin(), *encoder.begin);
    }
    return ids;
  };
  const std::vector<int32_t> prompt = encode(row.prompt);
  std::vector<std::vector<int32_t>> whole{encode(row.prompt + row.answer)};
  if (!row.rejected.empty()) {
    whole.push_back(encode(row.prompt + row.rejected));
  }
  int64_t shared = std::ssize(prompt);
  for (std::vector<int32_t>& ids : whole) {
    if (!row.is_chat && (ids.empty() || ids.back() != *encoder.end)) {
      ids.push_back(*encoder.end);
    }
    shared = std::min(shared, same_at_the_beginning(prompt, ids));
  }
  std::vector<EncodedAnswer> answers;
  for (const std::vector<int32_t>& ids : whole) {
    answers.push_back({{ids.begin(), ids.begin() + shared}, {ids.begin() + shared, ids.end()}});
  }
  return answers;
}

using AnswersOfRows = std::vector<std::vector<EncodedAnswer>>;

/// Encodes all rows on all cores.
AnswersOfRows encode_all(const Preferences& rows, const Encoder& encoder) {
  constexpr size_t kAtOnce = 256;
  OrderedTasks<size_t, AnswersOfRows> tasks(usable_cpus(), [&](size_t begin) {
    AnswersOfRows answers;
    for (size_t i = begin; i < std::min(begin + kAtOnce, rows.rows.size()); ++i) {
      answers.push_back(encode_row_of_answers(rows.rows[i], encoder));
    }
    return answers;
  });
  for (size_t begin = 0; begin < rows.rows.size(); begin += kAtOnce) {
    tasks.add(begin);
  }
  AnswersOfRows all;
  while (tasks.in_flight() > 0) {
    std::ranges::move(tasks.take(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

EncodedAnswer cut_answer(EncodedAnswer answer, const AnswerLimits& limits) {
  auto& [prompt, text] = answer;
  const auto shorten = [](std::vector<int32_t>& ids, int64_t length, TruncationSide kept) {
    const int64_t over = std::max<int64_t>(0, std::ssize(ids) - length);
    if (kept == TruncationSide::kStart) {
      ids.erase(ids.end() - over, ids.end());
    } else {
      ids.erase(ids.begin(), ids.begin() + over);
    }
  };
  if (limits.prompt) {
    shorten(prompt, *limits.prompt, TruncationSide::kEnd);
  }
  if (limits.kept != TruncationSide::kEnd) {
    shorten(text, std::max<int64_t>(0, limits.length - std::ssize(prompt)), TruncationSide::kStart);
    shorten(prompt, limits.length, TruncationSide::kStart);
  } else {
    shorten(text, limits.length, TruncationSide::kEnd);
    shorten(prompt, limits.length - std::ssize(text), TruncationSide::kEnd);
  }
  return answer;
}

EncodedPreferences encode_preferences(
    const Preferences& rows, const Encoder& encoder, const AnswerLimits& limits, Judged judged) {
  if (!encoder.end) {
    throw Error(
        ErrorKind::kData,
        "the tokenizer has no EOS token, which every answer ends with",
        "set it in tokenizer_config.json: \"eos_token\"");
  }
  EncodedPreferences result;
  const AnswersOfRows all = encode_all(rows, encoder);
  const bool has_margins = std::ranges::any_of(
      rows.rows, [](const PreferenceRow& row) { return row.margin.has_value(); });
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t prompt =
        std::min<int64_t>(std::ssize(all[i].front().prompt), limits.prompt.value_or(limits.length));
    const bool is_too_long = std::ranges::any_of(all[i], [&](const EncodedAnswer& answer) {
      return prompt + std::ssize(answer.answer) > limits.length;
    });
    if ((limits.kept == TruncationSide::kStart && prompt >= limits.length) ||
        (limits.kept == TruncationSide::kNeither && is_too_long)) {
      ++result.dropped;
      continue;
    }
    for (const EncodedAnswer& answer : all[i]) {
      result.cut += prompt + std::ssize(answer.answer) > limits.length ? 1 : 0;
      result.answers.push_back(answer);
    }
    if (has_margins) {
      result.margins.insert(result.margins.end(), all[i].size(), rows.rows[i].margin.value_or(0));
    }
    if (judged == Judged::kInPairs) {
      result.roles.insert(result.roles.end(), {RowRole::kChosen, RowRole::kRejected});
    } else {
      result.roles.push_back(rows.rows[i].is_good ? RowRole::kChosen : RowRole::kRejected);
    }
  }
  if (result.answers.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "none of {} rows is left: {} longer than data.sequence_length={}",
            all.size(),
            limits.kept == TruncationSide::kNeither ? "all are" : "their prompts are",
            limits.length),
        "increase data.sequence_length, or set a smaller preference.max_prompt_length");
  }
  return result;
}

std::vector<EncodedAnswer> mismatched(const std::vector<EncodedAnswer>& answers, int64_t block) {
  const int64_t all = std::ssize(answers);
  if (all < 2) {
    throw Error(
        ErrorKind::kData,
        "preference.objective=kto estimates the KL from answers to other prompts, but there is "
        "only one row",
        "add rows, or use preference.loss_type=apo_zero_unpaired, which does not need the KL");
  }
  std::vector<EncodedAnswer> result;
  for (int64_t begin = 0; begin < all;) {
    int64_t end = std::min(all, begin + std::max<int64_t>(block, 2));
    end = all - end == 1 ? all : end;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t before = i == begin ? end - 1 : i - 1;
      result.push_back(
          {answers[static_cast<size_t>(i)].prompt, answers[static_cast<size_t>(before)].answer});
    }
    begin = end;
  }
  return result;
}

std::filesystem::path write_answers(
    const std::vector<EncodedAnswer>& answers,
    const AnswerLimits& limits,
    const std::filesystem::path& folder,
    const Encoder& encoder,
    int64_t vocabulary,
    int32_t pad) {
  std::vector<EncodedAnswer> rows;
  Hasher hasher;
  hasher.update_field(kAnswersRecipe);
  hasher.update_field(encoder.fingerprint);
  hasher.update_field(fmt::format("{} {} {}", vocabulary, pad, answers.size()));
  for (const EncodedAnswer& answer : answers) {
    rows.push_back(cut_answer(answer, limits));
    for (const std::vector<int32_t>* ids : {&rows.back().prompt, &rows.back().answer}) {
      hasher.update_field(
          {reinterpret_cast<const char*>(ids->data()), ids->size() * sizeof(int32_t)});
    }
  }
  const std::string key = hasher.hex();
  const std::filesystem::path path = folder / fmt::format("{}-answers.tokens", key);
  if (std::filesystem::exists(path)) {
    try {
      const auto there = TokenDataset::open(path);
      there->verify();
      if (there->key() == key) {
        return path;
      }
    } catch (const Error& error) {
      log_warning("{}; creating it again", error.message());
    }
  }
  create_folders(folder, ErrorKind::kData);
  TokenFileWriter writer(path, key, vocabulary, pad);
  for (const EncodedAnswer& row : rows) {
    writer.add(row.prompt);
    writer.add(row.answer);
    writer.end_document(std::ssize(row.prompt));
  }
  writer.commit();
  return path;
}

}  // namespace lockstep::data
