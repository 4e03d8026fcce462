// Validates LoRA, quantization and 8-bit floats.
#include <bit>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "config/core/checker.h"
#include "config/core/scalar.h"
#include "config/validate.h"

namespace lockstep::config {
namespace {

constexpr const char* kBits = "quantization.bits";

/// Moves the value of `other`, a BitsAndBytesConfig name, to `own`.
template <class Value>
void take_other_name(
    std::optional<Value>& own,
    std::optional<Value>& other,
    const std::string& name,
    const std::string& other_name,
    const Origins& origins,
    Problems& problems) {
  if (!other) {
    return;
  }
  if (own && *own != *other) {
    const std::string key = "quantization." + other_name;
    problems.add(
        key,
        origins.at(key),
        fmt::format("contradicts quantization.{}: they are the same setting", name),
        "set only one of them");
  }
  own = std::exchange(other, std::nullopt);
}

}  // namespace

void settle_quantization(QuantizationSection& section, const Origins& origins, Problems& problems) {
  const auto turn_on = [&](std::optional<bool>& is_on, int64_t bits, const char* name) {
    std::optional<int64_t> other;
    if (std::exchange(is_on, std::nullopt).value_or(false)) {
      other = bits;
    }
    take_other_name(section.bits, other, "bits", name, origins, problems);
  };
  const bool as_bitsandbytes = section.load_in_4bit.value_or(false);
  turn_on(section.load_in_4bit, 4, "load_in_4bit");
  turn_on(section.load_in_8bit, 8, "load_in_8bit");
  take_other_name(
      section.type, section.bnb_4bit_quant_type, "type", "bnb_4bit_quant_type", origins, problems);
  take_other_name(
      section.double_quant,
      section.bnb_4bit_use_double_quant,
      "double_quant",
      "bnb_4bit_use_double_quant",
      origins,
      problems);
  if (as_bitsandbytes && !section.type) {
    section.type = "fp4";
  }
  std::vector<std::string>& skipped = section.skip_modules;
  skipped.insert(
      skipped.end(), section.llm_int8_skip_modules.begin(), section.llm_int8_skip_modules.end());
  section.llm_int8_skip_modules.clear();
}

void validate_lora(const Config& config, Checker& check) {
  const LoraSection& lora = config.lora;
  check.require(lora.r.value_or(1) >= 1, "lora.r", "at least 1");
  const double alpha = lora.lora_alpha.value_or(1), dropout = lora.lora_dropout.value_or(0);
  check.require(std::isfinite(alpha) && alpha > 0, "lora.lora_alpha", "above 0");
  check.require(dropout >= 0 && dropout < 1, "lora.lora_dropout", "at least 0 and below 1");
  const auto check_numbers =
      [&](const char* key, const std::vector<std::string>& words, const char* what) {
        for (const std::string& word : words) {
          if (to_integer(word).value_or(-1) < 0) {
            check.fail(key, fmt::format("'{}' is not a {} index", word, what));
          }
        }
      };
  check_numbers("lora.layers_to_transform", lora.layers_to_transform, "layer");
  check_numbers("lora.trainable_token_indices", lora.trainable_token_indices, "token");
  const auto check_values = [&](const char* key, const NumberMap& patterns) {
    for (const auto& [pattern, value] : patterns) {
      const bool fits = std::isfinite(value) && value > 0;
      check.require(fits, key, "numbers above 0");
    }
  };
  check_values("lora.rank_pattern", lora.rank_pattern);
  check_values("lora.alpha_pattern", lora.alpha_pattern);
  for (const auto& [pattern, rank] : lora.rank_pattern) {
    check.require(rank == std::floor(rank), "lora.rank_pattern", "integers");
  }
  LoraSection others = lora;
  others.adapter.clear();
  others.lora_dropout.reset();
  if (!lora.adapter.empty() && others != LoraSection{}) {
    check.fail(
        "lora.adapter",
        fmt::format(
            "{} already defines the adapter, but other keys of lora are set too", lora.adapter),
        "remove them; only lora.lora_dropout can be changed");
  }
}

void validate_quantization(const Config& config, Checker& check) {
  const QuantizationSection& section = config.quantization;
  const int64_t bits = section.bits.value_or(4), block = section.block_size.value_or(64);
  check.require(bits == 4 || bits == 8, kBits, "4 or 8");
  const bool is_power = block >= 32 && block <= 4096 && std::has_single_bit(uint64_t(block));
  check.require(is_power, "quantization.block_size", "a power of two from 32 to 4096");
  const bool asks_of_4_bits = section.type || section.double_quant || section.block_size;
  if (asks_of_4_bits && bits == 8) {
    check.fail(
        kBits,
        "8-bit quantization has no type, block size or double quantization",
        "remove these keys");
  }
  const std::string type = config.training.bf16   ? "bfloat16"
                           : config.training.fp16 ? "float16"
                                                  : "float32";
  if (section.bnb_4bit_compute_dtype.value_or(type) != type) {
    check.fail(
        "quantization.bnb_4bit_compute_dtype",
        fmt::format(
            "{} does not match the training type {}", *section.bnb_4bit_compute_dtype, type),
        "set training.bf16=true or fp16=true to use that type, or remove the key");
  }
  QuantizationSection others = section;
  others.bits.reset();
  others.bnb_4bit_compute_dtype.reset();
  if (!section.bits && others != QuantizationSection{}) {
    check.fail(kBits, "is required with other keys of quantization", "add bits=4 or bits=8");
  }
}

void validate_float8(const Config& config, Checker& check) {
  const PrecisionSection& section = config.precision;
  check.require(
      section.num_layers_at_start_in_bf16 >= 0,
      "precision.num_layers_at_start_in_bf16",
      "at least 0");
  check.require(
      section.num_layers_at_end_in_bf16 >= 0, "precision.num_layers_at_end_in_bf16", "at least 0");
  if (section.fp8 == "none") {
    return;
  }
  if (!config.training.bf16) {
    check.fail(
        "precision.fp8",
        fmt::format(
            "{}, but the training type is {}: values that are not in 8 bits must be bfloat16, "
            "whose range covers all scales",
            section.fp8,
            config.training.fp16 ? "float16" : "float32"),
        "set training.bf16=true, or remove it");
  }
  if (config.quantization.bits) {
    check.fail(
        "precision.fp8",
        fmt::format(
            "{} cannot be combined with quantization.bits={}, which dequantizes the same weights "
            "in its matrix products",
            section.fp8,
            *config.quantization.bits),
        "remove one of them");
  }
}

}  // namespace lockstep::config
