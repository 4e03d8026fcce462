// Serializes Arrow values as JSON.
#include "arrow/write_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include <arrow/array/array_binary.h>
#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

namespace lockstep::arrow_rows {
namespace {

using arrow::Type;

/// Returns the number of bytes before the first byte that JSON escapes: a quote, a backslash or a
/// control character. Processes eight bytes at a time because most output consists of strings.
size_t plain_bytes(std::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101U, kHigh = 0x8080808080808080U;
  const auto below = [](uint64_t bytes,
                        uint64_t limit) {  // sets the high bit of each byte below the limit
    return (bytes - kOnes * limit) & ~bytes & kHigh;
  };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, sizeof(bytes));
    if ((below(bytes, ' ') | below(bytes ^ (kOnes * '"'), 1) | below(bytes ^ (kOnes * '\\'), 1)) !=
        0) {
      break;
    }
  }
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < ' ' || byte == '"' || byte == '\\') {
      break;
    }
  }
  return at;
}

template <class Number>
void write_number(Number value, std::string& out) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

void write_float(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  write_number(value, out);
  if (out.find_first_of(".e", begin) == std::string::npos) {
    out += ".0";
  }
}

template <class ArrayType>
const ArrayType& as(const arrow::Array& column) {
  return static_cast<const ArrayType&>(column);
}

/// Lists repeat values of dictionaries and names of fields, which the file contains once.
void check_length(const std::string& out, size_t longest) {
  if (out.size() > longest) {
    throw RowTooLong();
  }
}

void write_list(
    const arrow::Array& values, int64_t begin, int64_t end, std::string& out, size_t longest) {
  out += '[';
  for (int64_t i = begin; i < end; ++i) {
    out += i > begin ? "," : "";
    write_json(values, i, out, longest);
    check_length(out, longest);
  }
  out += ']';
}

template <class ArrayType>
void write_list_of(const arrow::Array& column, int64_t row, std::string& out, size_t longest) {
  const auto& lists = as<ArrayType>(column);
  write_list(*lists.values(), lists.value_offset(row), lists.value_offset(row + 1), out, longest);
}

void write_struct(const arrow::Array& column, int64_t row, std::string& out, size_t longest) {
  const auto& fields = as<arrow::StructArray>(column);
  out += '{';
  for (int i = 0; i < fields.num_fields(); ++i) {
    out += i > 0 ? "," : "";
    write_json_string(column.type()->field(i)->name(), out);
    out += ':';
    write_json(*fields.field(i), row, out, longest);
  }
  out += '}';
}

void write_map(const arrow::Array& column, int64_t row, std::string& out, size_t longest) {
  const auto& maps = as<arrow::MapArray>(column);
  out += '{';
  for (int64_t i = maps.value_offset(row); i < maps.value_offset(row + 1); ++i) {
    out += i > maps.value_offset(row) ? "," : "";
    write_json(*maps.keys(), i, out, longest);  // is_writable() requires string keys
    out += ':';
    write_json(*maps.items(), i, out, longest);
    check_length(out, longest);
  }
  out += '}';
}

bool write_whole_number(const arrow::Array& column, int64_t row, std::string& out) {
  switch (column.type_id()) {
    case Type::INT8:
      write_number(as<arrow::Int8Array>(column).Value(row), out);
      return true;
    case Type::INT16:
      write_number(as<arrow::Int16Array>(column).Value(row), out);
      return true;
    case Type::INT32:
      write_number(as<arrow::Int32Array>(column).Value(row), out);
      return true;
    case Type::INT64:
      write_number(as<arrow::Int64Array>(column).Value(row), out);
      return true;
    case Type::UINT8:
      write_number(as<arrow::UInt8Array>(column).Value(row), out);
      return true;
    case Type::UINT16:
      write_number(as<arrow::UInt16Array>(column).Value(row), out);
      return true;
    case Type::UINT32:
      write_number(as<arrow::UInt32Array>(column).Value(row), out);
      return true;
    case Type::UINT64:
      write_number(as<arrow::UInt64Array>(column).Value(row), out);
      return true;
    default:
      return false;
  }
}

bool write_text(const arrow::Array& column, int64_t row, std::string& out) {
  switch (column.type_id()) {
    case Type::STRING:
      write_json_string(as<arrow::StringArray>(column).GetView(row), out);
      return true;
    case Type::LARGE_STRING:
      write_json_string(as<arrow::LargeStringArray>(column).GetView(row), out);
      return true;
    case Type::STRING_VIEW:
      write_json_string(as<arrow::StringViewArray>(column).GetView(row), out);
      return true;
    default:
      return false;
  }
}

bool write_nested(const arrow::Array& column, int64_t row, std::string& out, size_t longest) {
  switch (column.type_id()) {
    case Type::LIST:
      write_list_of<arrow::ListArray>(column, row, out, longest);
      return true;
    case Type::LARGE_LIST:
      write_list_of<arrow::LargeListArray>(column, row, out, longest);
      return true;
    case Type::FIXED_SIZE_LIST:
      write_list_of<arrow::FixedSizeListArray>(column, row, out, longest);
      return true;
    case Type::STRUCT:
      write_struct(column, row, out, longest);
      return true;
    case Type::MAP:
      write_map(column, row, out, longest);
      return true;
    case Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(column);
      write_json(*coded.dictionary(), coded.GetValueIndex(row), out, longest);
      return true;
    }
    case Type::EXTENSION:
      write_json(*as<arrow::ExtensionArray>(column).storage(), row, out, longest);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_writable(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY:
    case Type::SPARSE_UNION:
    case Type::DENSE_UNION:
    case Type::RUN_END_ENCODED:
    case Type::LIST_VIEW:
    case Type::LARGE_LIST_VIEW:
      return false;
    case Type::DICTIONARY:
      return is_writable(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return is_writable(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case Type::MAP:
      if (static_cast<const arrow::MapType&>(type).key_type()->id() != Type::STRING) {
        return false;
      }
      break;
    default:
      break;
  }
  for (const auto& field : type.fields()) {
    if (!is_writable(*field->type())) {
      return false;
    }
  }
  return true;
}

void write_json_string(std::string_view text, std::string& out) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  while (true) {
    const size_t plain = plain_bytes(text);
    out.append(text, 0, plain);
    if (plain == text.size()) {
      break;
    }
    const char c = text[plain];
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    text.remove_prefix(plain + 1);
  }
  out += '"';
}

void write_json(const arrow::Array& column, int64_t row, std::string& out, size_t longest) {
  if (column.IsNull(row) || column.type_id() == Type::NA) {
    out += "null";
    return;
  }
  if (write_text(column, row, out) || write_whole_number(column, row, out) ||
      write_nested(column, row, out, longest)) {
    return;
  }
  switch (column.type_id()) {
    case Type::BOOL:
      out += as<arrow::BooleanArray>(column).Value(row) ? "true" : "false";
      return;
    case Type::FLOAT: {  // shortest text that parses to the same float
      const float value = as<arrow::FloatArray>(column).Value(row);
      write_float(value, out);
      return;
    }
    case Type::DOUBLE:
      write_float(as<arrow::DoubleArray>(column).Value(row), out);
      return;
    case Type::HALF_FLOAT:
      write_float(
          arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(column).Value(row)).ToFloat(),
          out);
      return;
    default:
      break;
  }
  const auto scalar = column.GetScalar(row);  // dates, times and decimals
  write_json_string(scalar.ok() ? (*scalar)->ToString() : "", out);
}

}  // namespace lockstep::arrow_rows
