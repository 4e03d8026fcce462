// 4- and 8-bit quantization of linears: transformers' BitsAndBytesConfig, stored in config.json as
// quantization_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::model {

class ConfigReader;
struct ModelConfig;

struct Quantization {
  enum class Type { kNf4, kFp4 };
  int64_t bits = 4;               // 4 or 8
  Type type = Type::kNf4;         // 4-bit only, like the following fields
  bool double_quant = false;      // quantize the scales too
  int64_t block_size = 64;        // weights per scale; stored in the checkpoint for each tensor
  std::string compute_type = "";  // type of the products, as in the checkpoint; empty: unspecified
  /// Modules that are not quantized, by name suffix, in addition to the head; empty: none.
  std::vector<std::string> skip_modules;

  bool operator==(const Quantization&) const = default;
};

/// Parses "nf4" or "fp4"; nullopt for other values.
std::optional<Quantization::Type> quantization_type(std::string_view name);
std::string_view name_of(Quantization::Type type);

/// Parses the quantization_config of a config.json, if any. Other methods than bitsandbytes, and
/// settings that keep 16-bit weights, are recorded as problems, except gpt-oss's own format, which
/// is unpacked during loading.
std::optional<Quantization> parse_quantization(ConfigReader& reader);
/// Returns the quantization_config with all keys that transformers writes.
nlohmann::ordered_json to_json(const Quantization& quantization, const ModelConfig& model);

/// Returns the packed linears by parameter prefix: those of the blocks except skipped ones and, for
/// T5, the last linear of each MLP, which transformers also skips. Throws Error (kConfig) if a name
/// matches no module or nothing remains.
std::vector<std::string> packed_linears(const Quantization& quantization, const ModelConfig& model);

}  // namespace lockstep::model
