// Implements filters that return numbers.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/format.h"
#include "base/parse_double.h"
#include "jinja/filters.h"
#include "jinja/python_characters.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

/// Normalizes a number like Python's int() and float(): strips white space, removes underscores and
/// converts digits of other scripts to ASCII. Returns nullopt if an underscore is misplaced.
std::optional<std::string> plain_number(const std::string& text) {
  std::string plain;
  char32_t before = 0;
  const std::u32string points = text::to_code_points(strip(text, true, true));
  for (size_t at = 0; at < points.size(); ++at) {
    char32_t c = points[at];
    if (c == '_') {
      const auto is_digit = [](char32_t d) {
        return d < 0x80 && std::isalnum(static_cast<int>(d)) != 0;
      };
      if (!is_digit(before) || at + 1 == points.size() || !is_digit(points[at + 1])) {
        return std::nullopt;
      }
    } else {
      if (c >= 0x80 && is_decimal(c)) {  // decimal digits are in runs of ten that start at 0
        char32_t zero = c;
        while (c - zero < 9 && is_decimal(zero - 1)) {
          --zero;
        }
        c = U'0' + (c - zero);
      }
      text::append_code_point(plain, c);
    }
    before = c;
  }
  return plain;
}

/// Implements int(text, base). Returns nullopt if the text is not a number. Throws Error (data) if
/// it does not fit in 64 bits.
std::optional<int64_t> integer_in(std::string text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) {
    fail(fmt::format("int: the base is {}; must be 0 or 2 to 36", base));
  }
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) {
    text.erase(0, 1);
  }
  const char mark = text.size() > 1 && text[0] == '0'
                        ? static_cast<char>(std::tolower(static_cast<unsigned char>(text[1])))
                        : ' ';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == 0 || base == marked)) {
    text.erase(0, 2);
    base = marked;
  } else if (base == 0) {
    base = 10;
    if (text.starts_with('0') && text.find_first_not_of('0') != std::string::npos) {
      return std::nullopt;
    }
  }
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number, static_cast<int>(base));
  if (text.empty() || text[0] == '-' || at != end || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    fail(fmt::format("{} is too large for a 64-bit integer", text.substr(0, 40)));
  }
  return is_negative ? -number : number;
}

std::optional<double> float_in(std::string text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) {
    text.erase(0, 1);
  }
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  const bool is_word = word == "inf" || word == "infinity" || word == "nan";
  if (!is_word &&
      (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string::npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = parse_double(text.c_str(), &end);  // overflow gives infinity, as in Python
  if (end != text.c_str() + text.size() || text[0] == '-' || text[0] == '+') {
    return std::nullopt;
  }
  return is_negative ? -number : number;
}

/// Implements int(number), which truncates.
Value truncated(double number) {
  if (std::abs(number) >= 9.2e18) {
    fail(fmt::format("{} is too large for a 64-bit integer", number));
  }
  return static_cast<int64_t>(number);
}

/// Implements Python's round(number, digits). Rounds the exact value; ties round to even.
double rounded_to(double number, int64_t digits) {
  constexpr int64_t kMostDigits = 300;
  if (!std::isfinite(number) || digits > kMostDigits) {
    return number;
  }
  if (digits >= 0) {
    return parse_double(fmt::format("{:.{}f}", number, digits).c_str());
  }
  const double scale = std::pow(10.0, static_cast<double>(std::min(-digits, kMostDigits)));
  return std::nearbyint(number / scale) * scale;
}

}  // namespace

const Value* optional(const Arguments& arguments, size_t position, const char* name) {
  const Value* value = arguments.find(position, name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

std::string text_or(
    const Arguments& arguments, size_t position, const char* name, const char* otherwise) {
  const Value* value = optional(arguments, position, name);
  return value == nullptr ? otherwise : to_text(*value);
}

bool flag(const Arguments& arguments, size_t position, const char* name, bool otherwise) {
  const Value* value = optional(arguments, position, name);
  return value == nullptr ? otherwise : is_true(*value);
}

void check_defined(const Value& value) {
  if (value.is_undefined()) {
    fail(fmt::format("'{}' is undefined", value.undefined_name()));
  }
}

Value to_integer(const Value& value, const Arguments& arguments) {
  check_defined(value);
  const Value* otherwise = arguments.find(0, "default");
  const Value* base = arguments.find(1, "base");
  if (value.is_integer()) {
    return value.integer();
  }
  std::optional<double> number;
  if (value.is_float()) {
    number = value.number();
  } else if (const auto plain = value.is_string() ? plain_number(value.string()) : std::nullopt) {
    if (const auto whole = integer_in(*plain, base == nullptr ? 10 : base->integer())) {
      return *whole;
    }
    number = float_in(*plain);
  }
  if (number.has_value() && std::isfinite(*number)) {
    return truncated(*number);
  }
  return otherwise == nullptr ? Value(int64_t{0}) : *otherwise;
}

Value to_float(const Value& value, const Arguments& arguments) {
  check_defined(value);
  const Value* otherwise = arguments.find(0, "default");
  if (value.is_number()) {
    return value.number();
  }
  if (const auto plain = value.is_string() ? plain_number(value.string()) : std::nullopt) {
    if (const auto number = float_in(*plain)) {
      return *number;
    }
  }
  return otherwise == nullptr ? Value(0.0) : *otherwise;
}

Value rounded(const Value& value, const Arguments& arguments) {
  const Value* given = arguments.find(0, "precision");
  const int64_t digits = given == nullptr ? 0 : given->integer();
  const std::string method = text_or(arguments, 1, "method", "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    fail(fmt::format("round: the method is '{}'; must be common, ceil or floor", method));
  }
  if (method == "common") {
    if (!value.is_integer()) {
      return rounded_to(value.number(), digits);
    }
    return digits >= 0 ? Value(value.integer())
                       : truncated(rounded_to(value.number(), digits));  // exact below 2^53
  }
  const double scale = std::pow(10.0, static_cast<double>(digits)), x = value.number() * scale;
  return (method == "ceil" ? std::ceil(x) : std::floor(x)) / scale;
}

}  // namespace lockstep::jinja
