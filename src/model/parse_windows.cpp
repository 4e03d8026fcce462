// Parses the sliding windows in config.json.
#include "model/parse_windows.h"

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::model {

std::vector<std::string> parse_layer_types(ConfigReader& reader, const ModelConfig& config) {
  auto types = reader.texts("layer_types", static_cast<size_t>(int64_t{1} << 12));
  if (!types.empty() && static_cast<int64_t>(types.size()) != config.layers) {
    reader.problem(
        "layer_types", fmt::format("has {} entries for {} layers", types.size(), config.layers));
    types.clear();
  }
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.problem("layer_types", fmt::format("\"{}\" is not supported", type));
      return {};
    }
  }
  return types;
}

void parse_windows_by_type(
    ConfigReader& reader, ModelConfig& config, int64_t default_window, int64_t full_every) {
  const auto types = parse_layer_types(reader, config);
  const char* key = "sliding_window";
  const int64_t window = reader.object().contains(key)
                             ? reader.optional_integer(key, 1, int64_t{1} << 31).value_or(0)
                             : default_window;
  bool any_slides = false;
  config.sliding_windows.assign(static_cast<size_t>(config.layers), 0);
  for (size_t layer = 0; layer < config.sliding_windows.size(); ++layer) {
    const bool slides = types.empty() ? (static_cast<int64_t>(layer) + 1) % full_every != 0
                                      : types[layer] == "sliding_attention";
    any_slides = any_slides || slides;
    config.sliding_windows[layer] = slides ? window : 0;
  }
  if (any_slides && window == 0) {
    reader.problem(key, "is null, but some layers use sliding attention");
  }
}

}  // namespace lockstep::model
