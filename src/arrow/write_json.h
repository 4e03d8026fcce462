// A cell of Arrow's columns as JSON.
#pragma once

#include <cstdint>
#include <string>

#include <arrow/array/array_base.h>

namespace lockstep::arrow_rows {

/// Whether a column's values can be written: all but bytes, unions, and lists, maps and structs of
/// these.
bool is_writable(const arrow::DataType& type);

/// Appends the value of a row. Numbers, texts, lists and objects are those of JSON; dates, times
/// and decimals are texts; a null, and a number that is not finite, is null. A map is an object.
void write_json(const arrow::Array& column, int64_t row, std::string& out);

/// Appends a text in quotes.
void write_json_string(std::string_view text, std::string& out);

}  // namespace lockstep::arrow_rows
