// What the visitors of fields are told of each.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::config {

/// What is known of a field beside its value.
struct Field {
  std::string_view name;
  std::string_view help;
  /// The words that a string field may be; empty: any.
  std::span<const std::string_view> choices = {};
};

}  // namespace lockstep::config
