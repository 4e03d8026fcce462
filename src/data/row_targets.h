// What rows are to be told: classes, labels or numbers, made of their labels as files have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/labelled_rows.h"

namespace lockstep::data {

enum class TargetForm {
  kClass,    // one of the labels each
  kLabels,   // any number of them: a list, or a field for each label that holds 0 or 1
  kNumbers,  // a number for each field
};

/// What the rows' labels are by their looks: lists are kLabels; several fields of 0 and 1 too, and
/// else kNumbers; numbers one of which has a fraction or an exponent are kNumbers; else kClass.
/// Error (kData): lists and single labels beside each other, or numbers and words.
TargetForm find_form(const LabelledRows& rows, size_t fields, std::string_view key);

/// The labels that occur, in the order of their numbers: as integers where all are, else by code
/// point. Error (kData): of kClass a row without a label, fewer than two labels; of kLabels none.
std::vector<std::string> find_labels(
    const LabelledRows& rows, TargetForm form, std::string_view key);

/// What a row without a label has.
inline constexpr int64_t kNoClass = -100;

struct RowTargets {
  std::vector<int64_t> classes;  // [rows]: its class, of the other forms 0; kNoClass: it has none
  std::vector<float> outputs;    // [rows, labels] of the other forms: 0 or 1, or numbers
};

enum class MissingLabels {
  kError,
  kNoClass,  // kNoClass, and so is the class -1 (of test sets whose labels are not told)
};
/// The targets of rows whose labels come of `fields` fields. Labels that are LABEL_0, LABEL_1, ...
/// stand for 0, 1, ... too; of several fields the labels are those of the fields. Error (kData)
/// that lists the first rows without a label, with one that `labels` does not hold, or with what is
/// no number where one is wanted.
RowTargets targets_of(
    const LabelledRows& rows,
    TargetForm form,
    size_t fields,
    const std::vector<std::string>& labels,
    std::string_view key,
    MissingLabels missing = MissingLabels::kError);

}  // namespace lockstep::data
