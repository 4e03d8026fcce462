// What Python's str knows of characters: internal to jinja.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::jinja {

/// str.isspace() of one, by which strip() and split() go.
bool is_space(char32_t character);
/// Whether repr() shows it as it is.
bool is_printable(char32_t character);
bool is_letter(char32_t character);   // str.isalpha()
bool is_decimal(char32_t character);  // str.isdecimal()
bool is_number(char32_t character);   // categories N, of which str.isdigit() takes some
/// An upper, lower or title case letter.
bool is_cased(char32_t character);
bool is_upper_case(char32_t character);
bool is_lower_case(char32_t character);
/// Whether str.splitlines() ends a line at it.
bool ends_line(char32_t character);

/// str.upper(), str.lower(), str.title(), str.capitalize() of UTF-8. Errors (kData): letters whose
/// case is several letters, but for ß.
std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string title_case(std::string_view text);
std::string capitalized(std::string_view text);
/// str.isupper() and str.islower().
bool is_all_upper_case(std::string_view text);
bool is_all_lower_case(std::string_view text);

/// str.strip(), lstrip() and rstrip() of white space, or of `characters`.
std::string strip(std::string_view text, bool left, bool right);
std::string strip(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace lockstep::jinja
