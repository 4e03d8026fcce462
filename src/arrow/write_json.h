// JSON serialization of cells of an Arrow column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <arrow/array/array_base.h>

namespace lockstep::arrow_rows {

/// Returns true if values of this type can be written: all types except binary, unions, and lists,
/// maps and structs that contain them.
bool is_writable(const arrow::DataType& type);

/// A row's JSON is longer than the file may expand to.
class RowTooLong : public std::exception {};

/// Appends the value of a row. Numbers, strings, lists and structs map to JSON; maps become
/// objects. Dates, times and decimals become strings. Nulls, NaN and Inf become null. Throws
/// RowTooLong if `out` becomes longer than `longest` within a list or map.
void write_json(const arrow::Array& column, int64_t row, std::string& out, size_t longest);

/// Appends a quoted string.
void write_json_string(std::string_view text, std::string& out);

}  // namespace lockstep::arrow_rows
