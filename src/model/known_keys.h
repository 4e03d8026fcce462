// Keys of Hugging Face's files that Lockstep does not read because they have no effect on results.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// A key without an effect, and the reason. Tables of these keys are part of docs/models.md.
struct HarmlessKey {
  const char* key;
  const char* reason;
};

/// Returns the keys of config.json and of generation_config.json.
std::span<const HarmlessKey> harmless_config_keys();
std::span<const HarmlessKey> harmless_generation_keys();

/// A key of generation_config.json that `lockstep generate` does not support, and its value without
/// an effect in JSON; null never has an effect.
struct UnsupportedKey {
  const char* key;
  const char* neutral;
};
std::span<const UnsupportedKey> unsupported_generation_keys();

/// Returns the keys of a config.json that its family does not read and that are not known to be
/// harmless. Throws Error (data) if the file is invalid.
std::vector<std::string> unused_config_keys(std::string_view text, std::string_view source);

bool contains(std::span<const HarmlessKey> keys, std::string_view key);

}  // namespace lockstep::model
