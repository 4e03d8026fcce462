// JSON serialization of cells of an Arrow column.
#pragma once

#include <cstdint>
#include <string>

#include <arrow/array/array_base.h>

namespace lockstep::arrow_rows {

/// Returns true if values of this type can be written: all types except binary, unions, and lists,
/// maps and structs that contain them.
bool is_writable(const arrow::DataType& type);

/// Appends the value of a row. Numbers, strings, lists and structs map to JSON; maps become
/// objects. Dates, times and decimals become strings. Nulls, NaN and Inf become null.
void write_json(const arrow::Array& column, int64_t row, std::string& out);

/// Appends a quoted string.
void write_json_string(std::string_view text, std::string& out);

}  // namespace lockstep::arrow_rows
