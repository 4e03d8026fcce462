// Labels of a record, as written in its file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::data {

struct RawLabel {
  /// Trimmed values: a label, the labels of a list, or the values of several fields (empty if
  /// missing).
  std::vector<std::string> words;
  bool is_list = false;

  bool operator==(const RawLabel&) const = default;
};

/// Removes surrounding white space; nullopt if nothing else is left.
std::optional<std::string> trimmed(std::string_view text);

/// Parses a table field. A list is split at `delimiter`, if given, or written as Python and JSON
/// write lists of strings and integers: ['joy', 'love'], [3, 27]. Nullopt if the field is empty and
/// not an empty list.
std::optional<RawLabel> label_of_text(std::string_view text, std::string_view delimiter);

/// Parses a JSON value: numbers in decimal, booleans as in Python (True, False). Nullopt for null
/// or an empty string. Throws Error (data) with `place` and `field` for other values.
std::optional<RawLabel> label_of_json(
    const nlohmann::json& value,
    std::string_view delimiter,
    const std::string& place,
    const std::string& field);

}  // namespace lockstep::data
