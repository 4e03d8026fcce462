// Formats untrusted names for messages.
#include "checkpoint/text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::checkpoint {

std::string shown(std::string_view name) {
  constexpr size_t kLimit = 120;
  using json = nlohmann::json;
  const std::string text = json(std::string(name.substr(0, kLimit)))
                               .dump(-1, ' ', false, json::error_handler_t::replace);
  return name.size() > kLimit ? text + "..." : text;
}

std::string shape_text(std::span<const int64_t> shape) {
  constexpr size_t kLimit = 8;
  const auto shown = shape.first(std::min(shape.size(), kLimit));
  return fmt::format("[{}{}]", fmt::join(shown, ", "), shape.size() > kLimit ? ", ..." : "");
}

std::string list_text(std::span<const std::string> items, size_t limit) {
  const auto shown = items.first(std::min(items.size(), limit));
  const std::string text = fmt::format("{}", fmt::join(shown, ", "));
  return items.size() > limit ? fmt::format("{} and {} more", text, items.size() - limit) : text;
}

bool plain_file_name(std::string_view name) {
  return !name.empty() && name.size() < 256 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace lockstep::checkpoint
