// English of the sample corpus: lists, articles, templates.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::data {

using Gaps = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Replaces each {key} in `pattern` by its value. Throws Error (internal) for a key without a
/// value.
std::string fill(std::string_view pattern, Gaps gaps);
/// "a", "a and b", "a, b and c"; "nothing" for an empty list.
std::string listed(const std::vector<std::string>& items);
/// "a bell", "an apple".
std::string with_article(const std::string& noun);
std::string capital(std::string text);

}  // namespace lockstep::data
