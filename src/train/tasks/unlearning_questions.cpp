// Reads and encodes the files of TOFU and MUSE.
#include "train/tasks/unlearning_questions.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/hugging_face_cache.h"
#include "train/tasks/unlearning.h"

namespace lockstep::train {

UnlearningQuestions::UnlearningQuestions(
    const config::UnlearningSection& section,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t length)
    : section_(section),
      encoder_(data::make_encoder(tokenizer)),
      form_(question_template(section, *tokenizer)),
      length_(length) {
  if (section_.data_dir.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "unlearning.data_dir is required",
        "set it to the folder of TOFU's files: FORGET_perturbed.jsonl, retain_perturbed.jsonl, "
        "real_authors_perturbed.jsonl, world_facts_perturbed.jsonl, HOLDOUT.jsonl");
  }
  if (is_muse() && form_.form != data::QuestionTemplate::Form::kTags) {
    throw Error(
        ErrorKind::kConfig,
        "MUSE's few-shot questions cannot be formatted with a chat template",
        "set unlearning.chat_template=false");
  }
}

const UnlearningQuestions::Dataset& UnlearningQuestions::operator()(
    const std::string& name, const std::string& answer_key) {
  const std::string key = name + "/" + answer_key;
  const auto found = datasets_.find(key);
  if (found != datasets_.end()) {
    return found->second;
  }
  return datasets_.emplace(key, is_muse() ? texts_of(name) : questions_of(name, answer_key))
      .first->second;
}

std::vector<std::string> UnlearningQuestions::files_of(const std::string& name) const {
  const std::filesystem::path folder = section_.data_dir;
  if (const auto files = files_of_rows(folder / name); !files.empty()) {
    return {files.begin(), files.end()};
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "unlearning.metrics requires {}, but {} has no such file",
          name + ".jsonl",
          folder.string()),
      "set the folder of TOFU's files, and unlearning.forget_split and holdout_split to files in "
      "it");
}

UnlearningQuestions::Dataset UnlearningQuestions::questions_of(
    const std::string& name, const std::string& answer_key) const {
  const bool asks_forgotten = name.starts_with("forget");
  Dataset made;
  made.form = form_;
  made.questions = data::read_questions(
      files_of(name),
      data::Format::kAuto,
      "unlearning.data_dir",
      {asks_forgotten ? section_.question_key : "question",
       answer_key,
       "",
       answer_key == "answer"
           ? ""
           : "TOFU's own files named ..._perturbed have it; without it, reduce the metrics: "
             "unlearning.metrics=[forget_Q_A_Prob,forget_Q_A_ROUGE]"});
  for (const data::Question& row : made.questions.rows) {
    for (const std::string& answer : row.answers) {
      made.encoded.push_back(data::encode_question(row.question, answer, form_, encoder_, length_));
    }
  }
  return made;
}

/// Reads MUSE files: few-shot questions, prompts with continuations, or texts.
UnlearningQuestions::Dataset UnlearningQuestions::texts_of(const std::string& name) const {
  const std::vector<std::string> words = files_of(name);
  const auto read =
      [&](const std::vector<std::string>& files, const char* question, const char* answer) {
        return data::read_questions(
            files, data::Format::kAuto, "unlearning.data_dir", {question, answer, ""});
      };
  Dataset made;
  made.form = form_;
  if (name.starts_with("knowmem/")) {
    made.questions = read(words, "question", "answer");
    made.form.user_start.clear();
    for (const data::Question& row : read(files_of(name + "_icl"), "question", "answer").rows) {
      made.form.user_start += form_.user_start + row.question + form_.user_end +
                              form_.answer_start + row.answers.front() + section_.answer_end;
    }
    made.form.user_start += form_.user_start;
    return made;
  }
  if (name.starts_with("verbmem/")) {
    made.questions = read(words, "prompt", "gt");
  } else {
    for (const std::string& text :
         data::read_texts(words, data::Format::kAuto, "unlearning.data_dir", "text")) {
      data::Question& row = made.questions.rows.emplace_back();
      row.answers = {text};
    }
  }
  for (const data::Question& row : made.questions.rows) {
    made.encoded.push_back(
        data::encode_completion(row.question, " ", row.answers.front(), encoder_, length_));
  }
  return made;
}

}  // namespace lockstep::train
