// Recognition of the form of training rows by the fields of the first rows (data.prompt=auto).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/inputs.h"
#include "data/options.h"

namespace lockstep::data {

struct RowForm {
  Prompt prompt = Prompt::kNone;
  std::string fields = {};  // fields that determine the form: "prompt, completion"
  /// For kPairs: the fields with the prompt and with the answer.
  std::string instruction_field = {}, output_field = {};
  bool operator==(const RowForm&) const = default;
};

/// Returns the form of the rows of `inputs`, from the first 20 rows of the first file. A row with
/// the field `options.text_field`, plain text, and rows without known fields are kNone. Throws
/// Error (data) if a row has the fields of several forms or the first rows have different forms.
/// `key` is the configuration key of the files. Rows that are not valid are left to their parser.
RowForm recognize_rows(
    const std::vector<InputFile>& inputs, const DataOptions& options, std::string_view key);

}  // namespace lockstep::data
