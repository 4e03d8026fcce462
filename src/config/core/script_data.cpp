// Reads the data arguments of transformers' example scripts.
#include "config/core/script_data.h"

#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "base/nearest.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

constexpr const char* kClassification = "sequence_classification";

struct GlueTask {
  std::string_view name, text, pair, split_suffix, problem;
};
/// Text columns of each GLUE task, as in run_glue.py.
constexpr GlueTask kGlueTasks[] = {
    {"cola", "sentence", "", "", "single_label_classification"},
    {"mnli", "premise", "hypothesis", "_matched", "single_label_classification"},
    {"mrpc", "sentence1", "sentence2", "", "single_label_classification"},
    {"qnli", "question", "sentence", "", "single_label_classification"},
    {"qqp", "question1", "question2", "", "single_label_classification"},
    {"rte", "sentence1", "sentence2", "", "single_label_classification"},
    {"sst2", "sentence", "", "", "single_label_classification"},
    {"stsb", "sentence1", "sentence2", "", "regression"},
    {"wnli", "sentence1", "sentence2", "", "single_label_classification"},
};

struct SampleLimit {
  std::string_view name, files, split, usual_split;
};
constexpr SampleLimit kSampleLimits[] = {
    {"max_train_samples", "train", "train_split", "train"},
    {"max_eval_samples", "validation", "validation_split", "validation"},
    {"max_predict_samples", "test", "test_split", "test"},
};

/// Returns the value of a key, or nullptr if it is the default.
const Value* given(const Value& tree, const std::string& key) {
  const Value* const found = tree.find(split_path(key));
  return found == nullptr || found->is_null() || found->origin.source == Origin::Source::kDefault
             ? nullptr
             : found;
}

void set_if_free(
    const RuleTarget& target, const std::string& key, const std::string& text, const Value& from) {
  if (given(target.settings, key) == nullptr) {
    target.set(key, text, from);
  }
}

void read_column(const RuleTarget& target, const std::string& key, const Value& value) {
  if (!value.is_null()) {
    target.copy(key, value);
    set_if_free(target, "task.type", kClassification, value);
  }
}

}  // namespace

void read_text_columns(const RuleTarget& target, const std::string& /*name*/, const Value& value) {
  read_column(target, "data.text_field", value);
}

void read_label_column(const RuleTarget& target, const std::string& /*name*/, const Value& value) {
  read_column(target, "data.label_field", value);
}

std::vector<std::string> words_of(const std::vector<std::string>& files, const std::string& part) {
  if (part.empty()) {
    return files;
  }
  std::string together;
  for (const std::string& file : files) {
    together += together.empty() ? "" : ",";
    for (const char c : file) {
      together += std::string_view("{},*?[]\\").find(c) == std::string_view::npos ? "" : "\\";
      together += c;
    }
  }
  return {(files.size() == 1 ? files.front() : "{" + together + "}") + part};
}

void read_glue_task(const RuleTarget& target, const std::string& name, const Value& value) {
  if (value.is_null() || target.settings.find(Path{name}) != nullptr) {
    return;
  }
  const std::string asked = value.is_scalar() ? lower_case(value.text) : "";
  const auto* const task = std::ranges::find(kGlueTasks, asked, &GlueTask::name);
  if (task == std::end(kGlueTasks)) {
    std::vector<std::string> names;
    for (const GlueTask& each : kGlueTasks) {
      names.emplace_back(each.name);
    }
    target.refuse(
        name,
        value,
        "is not a GLUE task." + did_you_mean(asked, names),
        fmt::format("use one of {}", fmt::join(names, ", ")));
    return;
  }
  const auto set = [&](const std::string& key, std::string_view text) {
    if (!text.empty()) {
      set_if_free(target, key, std::string(text), value);
    }
  };
  set("task.type", kClassification);
  set("task.problem_type", task->problem);
  set("data.text_field", task->text);
  set("data.text_pair_field", task->pair);
  if (given(target.settings, "data.train") == nullptr) {
    set("data.dataset_name", "glue");
    set("data.dataset_config_name", task->name);
    if (!task->split_suffix.empty()) {
      set("data.validation_split", fmt::format("validation{}", task->split_suffix));
      set("data.validation_mm_split", "validation_mismatched");
      const Value* const predicts = given(target.settings, "training.do_predict");
      if (predicts != nullptr && is_on(*predicts)) {
        set("data.test_split", fmt::format("test{}", task->split_suffix));
        set("data.test_mm_split", "test_mismatched");
      }
    }
  }
}

void read_most_samples(const RuleTarget& target, const std::string& name, const Value& value) {
  if (value.is_null()) {
    return;
  }
  const auto count = value.is_scalar() ? to_integer(value.text) : std::nullopt;
  if (!count || *count < 1) {
    target.refuse(name, value, "is not a number of rows", "set it to 1 or more, or remove it");
    return;
  }
  const SampleLimit& limit = *std::ranges::find(kSampleLimits, name, &SampleLimit::name);
  const std::string files_key = fmt::format("data.{}", limit.files);
  const std::string split_key = fmt::format("data.{}", limit.split);
  const std::string part = fmt::format("[:{}]", *count);
  const Value* const files = given(target.settings, files_key);
  const bool is_named = given(target.settings, "data.dataset_name") != nullptr;
  const Value* const split = given(target.settings, split_key);
  std::vector<std::string> words;
  if (files != nullptr) {
    for (const Value& item : files->is_list() ? files->items : std::vector<Value>{*files}) {
      words.push_back(item.text);
    }
  } else if (is_named) {
    words.push_back(split == nullptr ? std::string(limit.usual_split) : split->text);
  }
  const bool has_parts = std::ranges::any_of(words, [&](const std::string& word) {
    return word.ends_with(']') || (files == nullptr && word.find('+') != std::string::npos);
  });
  if (words.empty() || has_parts) {
    target.refuse(
        name,
        value,
        words.empty() ? fmt::format("requires {}", files_key)
                      : fmt::format("{} is already a slice", words.front()),
        fmt::format("write the slice yourself: {}='...{}'", files_key, part));
    return;
  }
  target.set(
      files != nullptr ? files_key : split_key,
      files != nullptr ? words_of(words, part).front() : words.front() + part,
      value);
}

}  // namespace lockstep::config
