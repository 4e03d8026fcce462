// Implements parsing of task.class_weights.
#include "config/core/class_weights.h"

#include <algorithm>

#include "base/format.h"
#include "config/core/scalar.h"

namespace lockstep::config {

void list_class_weights(Value& tree) {
  Value* const weights = tree.find(Path{"task", "class_weights"});
  const auto is_scalar = [](const Entry& entry) { return entry.value.is_scalar(); };
  if (weights == nullptr || !weights->is_map() ||
      !std::ranges::all_of(weights->entries, is_scalar)) {
    return;
  }
  Value list = Value::list(weights->origin);
  for (const Entry& entry : weights->entries) {
    list.items.push_back(Value::scalar(
        fmt::format("{}={}", entry.name, entry.value.text), true, entry.value.origin));
  }
  *weights = std::move(list);
}

std::optional<std::pair<std::string, double>> named_weight(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) {
    return std::nullopt;
  }
  const auto weight = to_double(text.substr(equals + 1));
  return weight ? std::optional(std::pair(std::string(text.substr(0, equals)), *weight))
                : std::nullopt;
}

}  // namespace lockstep::config
