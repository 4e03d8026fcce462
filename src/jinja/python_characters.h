// Character properties and case mapping of Python's str. Internal to jinja.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::jinja {

/// Implements str.isspace() for one character. Also used by strip() and split().
bool is_space(char32_t character);
/// Returns true if repr() does not escape the character.
bool is_printable(char32_t character);
bool is_letter(char32_t character);   // str.isalpha()
bool is_decimal(char32_t character);  // str.isdecimal()
bool is_number(char32_t character);   // category N; str.isdigit() accepts only a subset
/// Returns true for uppercase, lowercase and title case letters.
bool is_cased(char32_t character);
bool is_upper_case(char32_t character);
bool is_lower_case(char32_t character);
/// Returns true if str.splitlines() ends a line at the character.
bool ends_line(char32_t character);

/// Implement str.upper(), lower(), title() and capitalize() for UTF-8. Throw Error (data) for
/// letters other than ß whose other case consists of several letters.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string title_case(std::string_view text);
std::string capitalized(std::string_view text);
/// Implement str.isupper() and str.islower().
bool is_all_upper_case(std::string_view text);
bool is_all_lower_case(std::string_view text);

/// Implement str.strip(), lstrip() and rstrip(), for white space or for the given `characters`.
std::string strip(std::string_view text, bool left, bool right);
std::string strip(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace lockstep::jinja
