// 4-bit and 8-bit quantization of linear layers: transformers' BitsAndBytesConfig, stored in
// config.json as quantization_config.
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
  Type type = Type::kNf4;         // this and the following fields: 4-bit only
  bool double_quant = false;      // also quantize the scales
  int64_t block_size = 64;        // weights per scale; stored per tensor in the checkpoint
  std::string compute_type = "";  // type of matrix products in the checkpoint; empty: unspecified
  /// Modules that are not quantized, by name suffix. The head is never quantized. Empty: no others.
  std::vector<std::string> skip_modules;

  bool operator==(const Quantization&) const = default;
};

/// Parses "nf4" or "fp4". Returns nullopt for other values.
std::optional<Quantization::Type> quantization_type(std::string_view name);
std::string_view name_of(Quantization::Type type);

/// Parses quantization_config in config.json, if present. Methods other than bitsandbytes, and
/// settings that keep 16-bit weights, are recorded as problems. gpt-oss's own format is accepted
/// and dequantized during loading.
std::optional<Quantization> parse_quantization(ConfigReader& reader);
/// Returns quantization_config with all keys that transformers writes.
nlohmann::ordered_json to_json(const Quantization& quantization, const ModelConfig& model);

/// Returns the quantized linear layers by parameter prefix: those in blocks, except skipped ones
/// and, for T5, the last linear layer of each MLP, which transformers also skips. Throws Error
/// (kConfig) if a skipped name matches no module or no layer remains.
std::vector<std::string> packed_linears(const Quantization& quantization, const ModelConfig& model);

}  // namespace lockstep::model
