// Targets of rows: classes, labels or numbers. They are created from the labels in files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/labelled_rows.h"

namespace lockstep::data {

enum class TargetForm {
  kClass,    // one label per row
  kLabels,   // any number of labels: a list, or one field per label with 0 or 1
  kNumbers,  // a number for each field
};

/// Determines the form from the labels of the rows. Lists are kLabels. Several fields are kLabels
/// if all values are 0 or 1, otherwise kNumbers. Labels that are numbers are kNumbers if one of
/// them has a fraction or an exponent. All other labels are kClass. Throws Error (data) if lists
/// are mixed with single labels, or numbers with words.
TargetForm find_form(const LabelledRows& rows, size_t fields, std::string_view key);

/// Returns the labels that occur, in the order of classes: by number if all are integers, otherwise
/// by code point. Throws Error (data) for kClass if a row has no label or there are fewer than two
/// labels, and for kLabels if there are no labels.
std::vector<std::string> find_labels(
    const LabelledRows& rows, TargetForm form, std::string_view key);

/// Class of rows without label.
inline constexpr int64_t kNoClass = -100;

struct RowTargets {
  std::vector<int64_t> classes;  // [rows]: class, or kNoClass; 0 for the other forms
  std::vector<float> outputs;    // [rows, labels] for the other forms: 0 or 1, or numbers
};

enum class MissingLabels {
  kError,
  kNoClass,  // use the class kNoClass, also for class -1 (test sets with hidden labels)
};
/// Returns the targets of rows. Their labels come from `fields` fields. With one field, LABEL_0,
/// LABEL_1, ... also match 0, 1, ...; with several fields, each field is a label. Throws Error
/// (data) that lists the first rows without label, with an unknown label, or with a value that must
/// be a number but is not.
RowTargets targets_of(
    const LabelledRows& rows,
    TargetForm form,
    size_t fields,
    const std::vector<std::string>& labels,
    std::string_view key,
    MissingLabels missing = MissingLabels::kError);

}  // namespace lockstep::data
