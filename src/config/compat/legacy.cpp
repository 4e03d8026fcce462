// The answers to the known names: see config/core/known_names.h.
#include <algorithm>

#include "base/format.h"
#include "config/core/known_names.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"

namespace lockstep::config {
namespace {

bool is_harmless(const KnownName& known, const Value& value) {
  if (value.is_null() || known.harmless == "*") {
    return true;
  }
  if (value.is_scalar() && is_null_word(value.text) && !value.quoted) {
    return true;
  }
  std::string text = value.is_scalar() ? lower_case(value.text) : lower_case(to_text(value));
  if (known.is_switch && value.is_scalar() && to_bool(value.text)) {
    text = *to_bool(value.text) ? "true" : "false";
  }
  std::erase(text, '\'');
  std::string_view rest = known.harmless;
  for (;;) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    if (lower_case(rest.substr(0, bar)) == text) {
      return true;
    }
    if (bar == rest.size()) {
      return false;
    }
    rest.remove_prefix(bar + 1);
  }
}

/// What an older name means today: sets another key of training, where that is not given.
class Mapper {
 public:
  Mapper(Value& training, Problems& problems) : training_(training), problems_(problems) {}

  void warmup_ratio(const Value& value) {
    const auto ratio = value.is_scalar() ? to_double(value.text) : std::nullopt;
    if (!ratio || *ratio < 0 || *ratio >= 1) {
      if (!value.is_null()) {
        problems_.add(
            "training.warmup_ratio",
            value.origin,
            fmt::format("{} is not a share below 1", short_text(value)),
            "training.warmup_steps takes a number of steps, or a share between 0 and 1");
      }
      return;
    }
    const Value* steps = training_.find("warmup_steps");
    const auto given =
        steps != nullptr && steps->is_scalar() ? to_double(steps->text) : std::nullopt;
    // transformers: the ratio counts where warmup_steps is 0.
    if (*ratio > 0 && given.value_or(0) == 0) {
      training_.at_or_add("warmup_steps") = Value::scalar(value.text, false, value.origin);
    }
  }

  void group_by_length(const Value& value) {
    set_if_true("group_by_length", value, "train_sampling_strategy", "group_by_length");
  }
  void adafactor(const Value& value) { set_if_true("adafactor", value, "optim", "adafactor"); }
  /// Of run_classification.py; whether it is set.
  bool do_regression(const Value& value) {
    const auto word = value.is_scalar() ? to_bool(value.text) : std::nullopt;
    if (!word && !value.is_null()) {
      problems_.add(
          "training.do_regression",
          value.origin,
          fmt::format("{} is not true or false", short_text(value)));
    }
    return word.value_or(false);
  }

 private:
  void set_if_true(
      const std::string& name, const Value& value, const std::string& key, const char* text) {
    const auto word = value.is_scalar() ? to_bool(value.text) : std::nullopt;
    if (!word && !value.is_null()) {
      problems_.add(
          "training." + name,
          value.origin,
          fmt::format("{} is not true or false", short_text(value)));
    } else if (word.value_or(false)) {
      training_.at_or_add(key) = Value::scalar(text, true, value.origin);
    }
  }

  Value& training_;
  Problems& problems_;
};

}  // namespace

void answer_known_names(Value& tree, Problems& problems, std::vector<std::string>& warnings) {
  Value* training = tree.find("training");
  if (training == nullptr || !training->is_map()) {
    return;
  }
  Mapper mapper(*training, problems);
  std::optional<Origin> asks_for_numbers;
  for (const KnownName& known : known_names()) {
    const Value* found = training->find(known.name);
    if (found == nullptr) {
      continue;
    }
    const Value value = *found;
    const std::string key = "training." + std::string(known.name);
    if (known.name == "warmup_ratio") {
      mapper.warmup_ratio(value);
    } else if (known.name == "group_by_length") {
      mapper.group_by_length(value);
    } else if (known.name == "adafactor") {
      mapper.adafactor(value);
    } else if (known.name == "do_regression") {
      asks_for_numbers = mapper.do_regression(value) ? std::optional(value.origin) : std::nullopt;
    } else if (known.answer == KnownName::Answer::kMapped) {
      continue;  // another reader takes it
    } else if (!is_harmless(known, value)) {
      if (known.answer == KnownName::Answer::kRefused) {
        problems.add(key, value.origin, std::string(known.reason));
      } else {
        warnings.push_back(
            fmt::format("{} ({}) does nothing: {}", key, describe(value.origin), known.reason));
      }
    }
    training->erase(known.name);
  }
  if (asks_for_numbers) {  // last: a new section may move the others
    Value& task = tree.at_or_add("task");
    task = task.is_map() ? task : Value::map(*asks_for_numbers);
    task.at_or_add("problem_type") = Value::scalar("regression", true, *asks_for_numbers);
  }
}

}  // namespace lockstep::config
