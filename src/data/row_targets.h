// Targets of rows: classes, labels or numbers, created from the labels in files.
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

/// Infers the form of the rows' labels: lists are kLabels; several fields are kLabels if all are 0
/// or 1, otherwise kNumbers; numbers of which one has a fraction or an exponent are kNumbers;
/// otherwise kClass. Throws Error (data) for lists mixed with single labels, or numbers with
/// words.
TargetForm find_form(const LabelledRows& rows, size_t fields, std::string_view key);

/// Returns the labels that occur, in class order: numerically if all are integers, otherwise by
/// code point. Throws Error (data) for kClass if a row has no label or there are fewer than two
/// labels, for kLabels if there is no label.
std::vector<std::string> find_labels(
    const LabelledRows& rows, TargetForm form, std::string_view key);

/// Class of a row without a label.
inline constexpr int64_t kNoClass = -100;

struct RowTargets {
  std::vector<int64_t> classes;  // [rows]: the class, 0 for other forms; kNoClass: none
  std::vector<float> outputs;    // [rows, labels] for other forms: 0 or 1, or numbers
};

enum class MissingLabels {
  kError,
  kNoClass,  // kNoClass, also for the class -1 (test sets with hidden labels)
};
/// Returns the targets of rows whose labels come from `fields` fields. LABEL_0, LABEL_1, ... also
/// match 0, 1, ...; with several fields, the fields are the labels. Throws Error (data) that lists
/// the first rows without a label, with an unknown label, or with a non-number where a number is
/// required.
RowTargets targets_of(
    const LabelledRows& rows,
    TargetForm form,
    size_t fields,
    const std::vector<std::string>& labels,
    std::string_view key,
    MissingLabels missing = MissingLabels::kError);

}  // namespace lockstep::data
