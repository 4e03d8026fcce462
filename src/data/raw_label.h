// Labels of a record, as written in its file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::data {

struct RawLabel {
  /// Values without surrounding white space: one label, the labels of a list, or the values of
  /// several fields (empty if missing).
  std::vector<std::string> words;
  bool is_list = false;

  bool operator==(const RawLabel&) const = default;
};

/// Removes surrounding white space. Returns nullopt if nothing is left.
std::optional<std::string> trimmed(std::string_view text);

/// Parses the field of a table. A list is split at `delimiter` if given. Otherwise it has the form
/// of a list of strings or integers in Python or JSON: ['joy', 'love'], [3, 27]. Returns nullopt if
/// the field is empty; an empty list is a label.
std::optional<RawLabel> label_of_text(std::string_view text, std::string_view delimiter);

/// Parses a JSON value. Numbers are written in decimal, booleans as in Python (True, False).
/// Returns nullopt for null and for an empty string. Throws Error (data) with `place` and `field`
/// for other values.
std::optional<RawLabel> label_of_json(
    const nlohmann::json& value,
    std::string_view delimiter,
    const std::string& place,
    const std::string& field);

}  // namespace lockstep::data
