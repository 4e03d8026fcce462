// Converts raw labels to targets.
#include "data/row_targets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostListed = 5;
using Numbers = std::map<std::string, int64_t, std::less<>>;

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  text.remove_prefix(text.starts_with('+') ? 1 : 0);
  Number value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(value)
                                                                   : std::nullopt;
}

std::optional<double> real(std::string_view text) {
  const auto value = parsed<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool has_fraction(std::string_view text) {
  return text.find_first_of(".eE") != std::string_view::npos && real(text).has_value();
}

/// Parses 0 or 1 as written in tables and JSON. Returns nullopt for other values.
std::optional<bool> truth(std::string_view text) {
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  return is_one_of({"1", "1.0", "True", "true"})     ? std::optional(true)
         : is_one_of({"0", "0.0", "False", "false"}) ? std::optional(false)
                                                     : std::nullopt;
}

/// Invalid rows: their number and the first ones.
class BadRows {
 public:
  void add(std::string text) {
    if (++count_ <= kMostListed) {
      first_.push_back(std::move(text));
    }
  }
  size_t count() const { return count_; }
  void report(std::string_view key, std::string_view what, const std::string& remedy) const {
    if (count_ == 0) {
      return;
    }
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: {} row{} {}\n  {}{}",
            key,
            count_,
            count_ == 1 ? "" : "s",
            what,
            fmt::join(first_, "\n  "),
            count_ > kMostListed ? fmt::format("\n  and {} more", count_ - kMostListed) : ""),
        remedy);
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> first_;
};

constexpr const char* kGiveLabels = "add a label to each, or remove it";

/// Returns the class numbers of label names. LABEL_0, LABEL_1, ... are also accepted for the labels
/// "0", "1", ...
Numbers numbers_of(const std::vector<std::string>& labels) {
  Numbers numbers;
  bool are_plain = true;
  for (size_t id = 0; id < labels.size(); ++id) {
    numbers.emplace(labels[id], id);
    are_plain = are_plain && labels[id] == fmt::format("LABEL_{}", id);
  }
  for (size_t id = 0; are_plain && id < labels.size(); ++id) {
    numbers.emplace(std::to_string(id), id);
  }
  return numbers;
}

std::string list_of(const std::vector<std::string>& labels) {
  constexpr size_t kMost = 12;
  const size_t count = std::min(labels.size(), kMost);
  return fmt::format(
      "{}{}",
      fmt::join(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(count), ", "),
      labels.size() > count ? fmt::format(", ... ({})", labels.size()) : "");
}

std::string shown(const LabelledRows& rows, const LabelledRow& row, std::string_view word) {
  return fmt::format("{}: \"{}\"", rows.place(row), word);
}

/// Creates the targets of a set of rows and collects the problems.
class Maker {
 public:
  Maker(const LabelledRows& rows, size_t fields, const std::vector<std::string>& labels)
      : rows_(rows),
        fields_(fields),
        labels_(labels),
        numbers_(numbers_of(labels)) {}

  RowTargets make(TargetForm form, std::string_view key, MissingLabels missing) {
    for (const LabelledRow& row : rows_.rows) {
      RowTargets& to = targets_;
      to.classes.push_back(row.label ? 0 : kNoClass);
      if (form != TargetForm::kClass) {
        to.outputs.resize(to.outputs.size() + labels_.size(), 0.0F);
      }
      if (!row.label) {
        if (missing == MissingLabels::kError) {
          without_.add(rows_.place(row));
        }
      } else if (form == TargetForm::kClass) {
        add_class(row, missing);
      } else if (form == TargetForm::kLabels && fields_ == 1) {
        add_labels(row);
      } else {
        add_fields(row, form);
      }
    }
    report(form, key);
    return std::move(targets_);
  }

 private:
  void add_class(const LabelledRow& row, MissingLabels missing) {
    const std::string& word = row.label->words.empty() ? "" : row.label->words.front();
    if (row.label->is_list) {
      wrong_.add(fmt::format("{}: [{}]", rows_.place(row), fmt::join(row.label->words, ", ")));
    } else if (const auto found = numbers_.find(word); found != numbers_.end()) {
      targets_.classes.back() = found->second;
    } else {
      targets_.classes.back() = kNoClass;
      if (missing == MissingLabels::kError || word != "-1") {
        add_unknown(row, word);
      }
    }
  }
  void add_labels(const LabelledRow& row) {
    for (const std::string& word : row.label->words) {
      if (const auto found = numbers_.find(word); found != numbers_.end()) {
        output(static_cast<size_t>(found->second)) = 1;
      } else {
        add_unknown(row, word);
      }
    }
  }
  void add_fields(const LabelledRow& row, TargetForm form) {
    const std::vector<std::string>& words = row.label->words;
    if (row.label->is_list || words.size() != labels_.size()) {
      wrong_.add(fmt::format("{}: [{}]", rows_.place(row), fmt::join(words, ", ")));
      return;
    }
    for (size_t k = 0; k < words.size(); ++k) {
      const auto is_true = truth(words[k]);
      const auto number = form == TargetForm::kNumbers ? real(words[k])
                          : is_true                    ? std::optional(*is_true ? 1.0 : 0.0)
                                                       : std::nullopt;
      if (number) {
        output(k) = static_cast<float>(*number);
      } else {
        wrong_.add(fmt::format(
            "{}{}",
            shown(rows_, row, words[k]),
            fields_ > 1 ? fmt::format(" for \"{}\"", labels_[k]) : ""));
      }
    }
  }
  void add_unknown(const LabelledRow& row, const std::string& word) {
    unknown_.add(fmt::format("{}.{}", shown(rows_, row, word), did_you_mean(word, labels_)));
  }
  float& output(size_t k) { return targets_.outputs[targets_.outputs.size() - labels_.size() + k]; }
  void report(TargetForm form, std::string_view key) const {
    without_.report(key, "without a label", kGiveLabels);
    if (form == TargetForm::kClass) {
      wrong_.report(
          key,
          "with a list of labels",
          "a row has one label here; for several labels, set "
          "task.problem_type=multi_label_classification");
    } else if (form == TargetForm::kLabels) {
      wrong_.report(
          key,
          "with a value other than 0 and 1 in a label field",
          "write 0 or 1 for each label, or set task.problem_type=regression for numbers");
    } else {
      wrong_.report(
          key,
          "without a number",
          "write a finite number, or set task.problem_type=single_label_classification for names");
    }
    unknown_.report(
        key,
        "with an unknown label",
        fmt::format(
            "the classes are {}: fix the rows, or list all classes: task.labels=[...]",
            list_of(labels_)));
  }

  const LabelledRows& rows_;
  size_t fields_;
  const std::vector<std::string>& labels_;
  Numbers numbers_;
  RowTargets targets_;
  BadRows without_, unknown_, wrong_;
};

/// Returns the form of rows with several label fields: kLabels if all values are 0 or 1, otherwise
/// kNumbers.
TargetForm form_of_fields(const LabelledRows& rows) {
  for (const LabelledRow& row : rows.rows) {
    for (const std::string& word : row.label ? row.label->words : std::vector<std::string>{}) {
      if (!word.empty() && !truth(word)) {
        return TargetForm::kNumbers;
      }
    }
  }
  return TargetForm::kLabels;
}

}  // namespace

TargetForm find_form(const LabelledRows& rows, size_t fields, std::string_view key) {
  if (fields > 1) {
    return form_of_fields(rows);
  }
  BadRows lists, single, words, numbers;
  bool has_fractions = false;
  for (const LabelledRow& row : rows.rows) {
    if (!row.label) {
      continue;
    }
    if (row.label->is_list) {
      lists.add(fmt::format("{}: [{}]", rows.place(row), fmt::join(row.label->words, ", ")));
      continue;
    }
    const std::string& word = row.label->words.front();
    single.add(shown(rows, row, word));
    has_fractions = has_fractions || has_fraction(word);
    const bool is_number = parsed<int64_t>(word).has_value() || has_fraction(word);
    (is_number ? numbers : words).add(shown(rows, row, word));
  }
  if (lists.count() > 0 && single.count() > 0) {
    const bool are_lists_fewer = lists.count() < single.count();
    (are_lists_fewer ? lists : single)
        .report(
            key,
            fmt::format(
                "with {}, while {} others have {}",
                are_lists_fewer ? "a list of labels" : "a single label",
                std::max(lists.count(), single.count()),
                are_lists_fewer ? "a single one" : "lists"),
            "use the same form for all labels, or set "
            "task.problem_type=multi_label_classification, which accepts both");
  }
  if (words.count() > 0 && numbers.count() > 0) {
    const bool are_words_fewer = has_fractions || words.count() <= numbers.count();
    (are_words_fewer ? words : numbers)
        .report(
            key,
            fmt::format(
                "with a label that is {} number, while {} others have {}",
                are_words_fewer ? "no" : "a",
                are_words_fewer ? numbers.count() : words.count(),
                has_fractions     ? "numbers with a fraction"
                : are_words_fewer ? "numbers"
                                  : "names"),
            "fix the rows, or set task.problem_type=single_label_classification if they are names");
  }
  return lists.count() > 0 ? TargetForm::kLabels
         : has_fractions   ? TargetForm::kNumbers
                           : TargetForm::kClass;
}

std::vector<std::string> find_labels(
    const LabelledRows& rows, TargetForm form, std::string_view key) {
  std::set<std::string> found;
  BadRows bad;
  for (const LabelledRow& row : rows.rows) {
    if (row.label) {
      found.insert(row.label->words.begin(), row.label->words.end());
    } else {
      bad.add(rows.place(row));
    }
  }
  bad.report(key, "without a label", kGiveLabels);
  std::vector<std::string> labels(
      found.begin(), found.end());  // the order of UTF-8 bytes is that of code points
  if (std::all_of(labels.begin(), labels.end(), [](const auto& label) {
        return parsed<int64_t>(label).has_value();
      })) {
    std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) {
      return *parsed<int64_t>(a) < *parsed<int64_t>(b);
    });
  }
  if (form == TargetForm::kClass && labels.size() < 2) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: every row has the label \"{}\"", key, labels.empty() ? "" : labels.front()),
        "a classifier needs at least two classes: add rows of other classes, or set another "
        "data.label_field");
  }
  if (labels.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: no row has a label", key),
        "add rows with labels, or set another data.label_field");
  }
  return labels;
}

RowTargets targets_of(
    const LabelledRows& rows,
    TargetForm form,
    size_t fields,
    const std::vector<std::string>& labels,
    std::string_view key,
    MissingLabels missing) {
  return Maker(rows, fields, labels).make(form, key, missing);
}

}  // namespace lockstep::data
