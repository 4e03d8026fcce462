// How a model's linears are packed in 4 or 8 bits: transformers' BitsAndBytesConfig, which a
// config.json holds as quantization_config.
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
  int64_t bits = 4;               // or 8
  Type type = Type::kNf4;         // of 4 bits, as what follows
  bool double_quant = false;      // the scales are packed too
  int64_t block_size = 64;        // weights with one scale; a folder's file says it for each
  std::string compute_type = "";  // of products, as a folder names it; empty: it names none
  /// Modules that are left as they are, by the ends of their names, besides the head; empty: none.
  std::vector<std::string> skip_modules;

  bool operator==(const Quantization&) const = default;
};

/// "nf4" or "fp4"; nothing for another word.
std::optional<Quantization::Type> quantization_type(std::string_view name);
std::string_view name_of(Quantization::Type type);

/// The quantization_config of a config.json, which may be missing. What is not bitsandbytes', or
/// keeps weights of 16 bits, is a problem of the reader; but gpt-oss's own is none, whose weights
/// are unpacked where they are read.
std::optional<Quantization> parse_quantization(ConfigReader& reader);
/// It, with all keys that transformers writes.
nlohmann::ordered_json to_json(const Quantization& quantization, const ModelConfig& model);

/// The linears that are packed, by the prefixes of their names: those of the blocks but those that
/// are skipped, and of T5 the last of each MLP, which transformers leaves too. Error (kConfig)
/// where a name is no module's, or nothing is left.
std::vector<std::string> packed_linears(const Quantization& quantization, const ModelConfig& model);

}  // namespace lockstep::model
