// English phrases for the sample corpus: lists, articles and templates.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::data {

using Gaps = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Replaces each {key} in `pattern` by its value. Throws Error (internal) if a key has no value.
std::string fill(std::string_view pattern, Gaps gaps);
/// Returns "a", "a and b", or "a, b and c"; "nothing" for an empty list.
std::string listed(const std::vector<std::string>& items);
/// Returns a noun with its indefinite article: "a bell", "an apple".
std::string with_article(const std::string& noun);
std::string capital(std::string text);

}  // namespace lockstep::data
