// Parses quantization_config and selects the quantized linear layers.
#include "model/quantization.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/config_reader.h"
#include "model/description.h"
#include "model/lora_targets.h"
#include "model/model_config.h"

namespace lockstep::model {
namespace {

constexpr const char* kKey = "quantization_config";

/// Returns true if any of `names` is a dot-separated component, or sequence of components, of the
/// module name.
bool is_skipped(const std::string& module, const std::vector<std::string>& names) {
  const std::string dotted = "." + module + ".";
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return dotted.find("." + name + ".") != std::string::npos;
  });
}

/// Same as T5PreTrainedModel._keep_in_fp32_modules in transformers.
bool is_kept_wide(const std::string& module, Family family) {
  return family == Family::kT5 && module.ends_with(".wo");
}

}  // namespace

std::optional<Quantization::Type> quantization_type(std::string_view name) {
  return name == "nf4"   ? std::optional(Quantization::Type::kNf4)
         : name == "fp4" ? std::optional(Quantization::Type::kFp4)
                         : std::nullopt;
}

std::string_view name_of(Quantization::Type type) {
  return type == Quantization::Type::kNf4 ? "nf4" : "fp4";
}

std::optional<Quantization> parse_quantization(ConfigReader& reader) {
  if (!reader.has(kKey)) {
    return std::nullopt;
  }
  const nlohmann::json& object = reader.object().at(kKey);
  if (!object.is_object()) {
    reader.problem(kKey, shown(object) + " is not an object");
    return std::nullopt;
  }
  ConfigReader own(object, std::string(kKey) + ".", reader.problems());
  const std::string method = own.text("quant_method", "bitsandbytes");
  if (method == "mxfp4" && reader.text("model_type", "") == "gpt_oss") {
    return std::nullopt;  // experts are dequantized during loading
  }
  if (method != "bitsandbytes") {
    own.problem(
        "quant_method", fmt::format("\"{}\" is not supported; only bitsandbytes is", method));
    return std::nullopt;
  }
  Quantization result;
  const bool is_8_bits = own.boolean("load_in_8bit", false);
  if (is_8_bits == own.boolean("load_in_4bit", false)) {
    own.problem("load_in_4bit", "or load_in_8bit must be true, but not both");
  }
  if (own.boolean("llm_int8_has_fp16_weight", false)) {
    own.problem("llm_int8_has_fp16_weight", "true (quantization in each pass) is not supported");
  }
  result.bits = is_8_bits ? 8 : 4;
  const std::string type = own.text("bnb_4bit_quant_type", "fp4");
  if (const auto known = quantization_type(type)) {
    result.type = *known;
  } else {
    own.problem("bnb_4bit_quant_type", fmt::format("\"{}\" is neither nf4 nor fp4", type));
  }
  result.double_quant = own.boolean("bnb_4bit_use_double_quant", false);
  result.compute_type = own.text("bnb_4bit_compute_dtype", "");
  constexpr size_t kMostNames = 1 << 16;
  result.skip_modules = own.texts("llm_int8_skip_modules", kMostNames);
  return result;
}

nlohmann::ordered_json to_json(const Quantization& quantization, const ModelConfig& model) {
  const bool is_4_bits = quantization.bits == 4;
  nlohmann::ordered_json object{
      {"_load_in_4bit", is_4_bits},
      {"_load_in_8bit", !is_4_bits},
      {"bnb_4bit_compute_dtype",
       quantization.compute_type.empty() ? "float32" : quantization.compute_type},
      {"bnb_4bit_quant_storage", "uint8"},
      {"bnb_4bit_quant_type", name_of(quantization.type)},
      {"bnb_4bit_use_double_quant", is_4_bits && quantization.double_quant},
      {"llm_int8_enable_fp32_cpu_offload", false},
      {"llm_int8_has_fp16_weight", false},
      {"llm_int8_skip_modules", nullptr},
      {"llm_int8_threshold", 6.0},
      {"load_in_4bit", is_4_bits},
      {"load_in_8bit", !is_4_bits},
      {"quant_method", "bitsandbytes"}};
  if (!quantization.skip_modules.empty()) {
    // A list replaces transformers' default, which includes the head.
    std::vector<std::string> names = quantization.skip_modules;
    names.push_back(
        !model.head.classifies() ? "lm_head"
        : model.bidirectional    ? "classifier"
                                 : "score");
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    object["llm_int8_skip_modules"] = names;
  }
  return object;
}

std::vector<std::string> packed_linears(
    const Quantization& quantization, const ModelConfig& model) {
  std::vector<std::string> packed, all;
  for (const LayerSpec& layer : describe(model)) {
    all.push_back(layer.prefix);
    if (layer.kind == LayerKind::kLinear && layer.block >= 0 &&
        !is_skipped(layer.prefix, quantization.skip_modules) &&
        !is_kept_wide(layer.prefix, model.family)) {
      packed.push_back(layer.prefix);
    }
  }
  for (const std::string& name : quantization.skip_modules) {
    const auto is_named = [&](const std::string& module) { return is_skipped(module, {name}); };
    if (name != "lm_head" && name != "score" && name != "classifier" &&
        std::none_of(all.begin(), all.end(), is_named)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "quantization.skip_modules has '{}', which matches no module of the model.{}",
              name,
              did_you_mean(name, all)),
          "use the end of a module's name, such as mlp.down_proj");
    }
  }
  if (packed.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "quantization.skip_modules leaves no linear to quantize",
        "remove some of its names, or all quantization keys");
  }
  return packed;
}

}  // namespace lockstep::model
