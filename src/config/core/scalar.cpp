// Parses scalars: booleans, integers and floats.
#include "config/core/scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "base/text.h"

namespace lockstep::config {
namespace {

/// Returns the length of the leading digits. Single underscores between digits are allowed.
size_t take_digits(std::string_view text) {
  size_t taken = 0;
  while (taken < text.size()) {
    if (is_digit(text[taken])) {
      ++taken;
    } else if (
        text[taken] == '_' && taken > 0 && taken + 1 < text.size() && is_digit(text[taken + 1]) &&
        is_digit(text[taken - 1])) {
      ++taken;
    } else {
      break;
    }
  }
  return taken;
}

/// Variant without leading zeros: INT_UNSIGNED in Hydra's grammar.
size_t take_integer(std::string_view text) {
  return !text.empty() && text[0] == '0' ? 1 : take_digits(text);
}

bool is_float(std::string_view text) {
  const std::string lower = lower_case(text);
  if (lower == "inf" || lower == "nan") {
    return true;
  }
  const size_t whole = take_integer(text);
  text.remove_prefix(whole);
  bool point = false;
  size_t fraction = 0;
  if (!text.empty() && text[0] == '.') {
    point = true;
    text.remove_prefix(1);
    fraction = take_digits(text);
    text.remove_prefix(fraction);
  }
  if (whole == 0 && fraction == 0) {
    return false;
  }
  if (text.empty()) {
    return point;
  }
  if (text[0] != 'e' && text[0] != 'E') {
    return false;
  }
  text.remove_prefix(1);
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    text.remove_prefix(1);
  }
  return !text.empty() && take_digits(text) == text.size();
}

std::string without_underscores(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) &&
                         is_digit(text[i + 1]);
    if (!between) {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return lower;
}

ScalarType scalar_type(std::string_view text) {
  const std::string lower = lower_case(text);
  if (lower == "null") {
    return ScalarType::kNull;
  }
  if (lower == "true" || lower == "false") {
    return ScalarType::kBool;
  }
  std::string_view number = text;
  if (!number.empty() && (number[0] == '+' || number[0] == '-')) {
    number.remove_prefix(1);
  }
  if (!number.empty() && take_integer(number) == number.size()) {
    return ScalarType::kInteger;
  }
  return is_float(number) ? ScalarType::kFloat : ScalarType::kString;
}

std::optional<bool> to_bool(std::string_view text) {
  const std::string lower = lower_case(text);
  for (const char* word : {"true", "yes", "t", "y", "1", "on"}) {
    if (lower == word) {
      return true;
    }
  }
  for (const char* word : {"false", "no", "f", "n", "0", "off"}) {
    if (lower == word) {
      return false;
    }
  }
  return std::nullopt;
}

std::optional<double> to_double(std::string_view text) {
  std::string lower = without_underscores(lower_case(text));
  if (!lower.empty() && lower[0] == '+') {
    lower.erase(0, 1);
    if (!lower.empty() && lower[0] == '-') {
      return std::nullopt;
    }
  }
  const bool negative = !lower.empty() && lower[0] == '-';
  std::string_view magnitude = std::string_view(lower).substr(negative ? 1 : 0);
  if (magnitude == "inf" || magnitude == ".inf" || magnitude == "infinity") {
    return negative ? -HUGE_VAL : HUGE_VAL;
  }
  if (magnitude == "nan" || magnitude == ".nan") {
    return std::nan("");
  }
  double value = 0;
  const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
  if (lower.empty() || error != std::errc() || end != lower.data() + lower.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> to_integer(std::string_view text) {
  std::string plain = without_underscores(text);
  if (plain.size() > 1 && plain[0] == '+' && is_digit(plain[1])) {
    plain.erase(0, 1);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (!plain.empty() && error == std::errc() && end == plain.data() + plain.size()) {
    return value;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const auto number = to_double(text);
  if (number && std::abs(*number) <= kExact && std::floor(*number) == *number) {
    return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL" ||
         text == "None";
}

std::string number_text(double value) {
  if (std::isnan(value)) {
    return ".nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-.inf" : ".inf";
  }
  const std::string text = fmt::format("{}", value);
  // Adds a decimal point because YAML 1.1 readers parse 1e-05 as a string.
  const size_t exponent = text.find('e');
  if (text.find('.') == std::string::npos) {
    return exponent == std::string::npos ? text + ".0"
                                         : text.substr(0, exponent) + ".0" + text.substr(exponent);
  }
  return text;
}

}  // namespace lockstep::config
