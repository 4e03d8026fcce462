// What a record says of its labels, as it stands in its file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::data {

struct RawLabel {
  /// Trimmed. A label, the labels of a list, or what each of several fields holds; of these an
  /// empty one is missing.
  std::vector<std::string> words;
  bool is_list = false;

  bool operator==(const RawLabel&) const = default;
};

/// Without white space around it; nothing: there is nothing else.
std::optional<std::string> trimmed(std::string_view text);

/// Of a table's field. A list is what is cut at `delimiter`, if one is given, or is written as
/// Python and JSON write lists of strings and integers: ['joy', 'love'], [3, 27]. Nothing: the
/// field is empty, and is no list of none.
std::optional<RawLabel> label_of_text(std::string_view text, std::string_view delimiter);

/// Of a JSON value, numbers in decimal, truth as Python's (True, False). Nothing: it is null or an
/// empty string. Error (kData): what is no label; `place` and `field` say where.
std::optional<RawLabel> label_of_json(
    const nlohmann::json& value,
    std::string_view delimiter,
    const std::string& place,
    const std::string& field);

}  // namespace lockstep::data
