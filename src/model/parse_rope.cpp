// Parses the rotary position options of config.json.
#include "model/parse_rope.h"

#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/first_rank.h"
#include "base/format.h"
#include "base/nearest.h"

namespace lockstep::model {
namespace {

using nlohmann::json;

constexpr double kLargestTheta = 1e15, kLargestFactor = 1e6;
constexpr int64_t kMostRopePositions = int64_t{1} << 31;
const std::array<std::pair<const char*, RopeType>, 6> kTypes = {{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongRope},
}};

RopeType parse_type(ConfigReader& reader, const RopeKeys& keys) {
  std::string name = reader.text("rope_type", reader.text("type", "default"));
  if (keys.renames_longrope && (name == "su" || name == "yarn")) {
    name = "longrope";
  }
  std::vector<std::string> names;
  for (const auto& [known, type] : kTypes) {
    if (name == known) {
      return type;
    }
    names.emplace_back(known);
  }
  reader.problem(
      "rope_type",
      fmt::format(
          "\"{}\" is not supported; use one of {}.{}",
          name,
          fmt::join(names, ", "),
          did_you_mean(name, names)));
  return RopeType::kDefault;
}

void need(ConfigReader& reader, const char* key, const char* type) {
  if (!reader.has(key)) {
    reader.problem(key, fmt::format("is missing; rope_type \"{}\" requires it", type));
  }
}

void parse_longrope(ConfigReader& reader, Rope& rope, int64_t rotary_dim) {
  constexpr size_t kLongest = 1 << 16;
  for (auto [key, values] :
       {std::pair("short_factor", &rope.short_factor),
        std::pair("long_factor", &rope.long_factor)}) {
    need(reader, key, "longrope");
    *values = reader.numbers(key, 1e-6, kLargestFactor, kLongest);
    if (!values->empty() && static_cast<int64_t>(values->size()) != rotary_dim / 2) {
      reader.problem(
          key,
          fmt::format(
              "has {} numbers; a rotary dim of {} requires {}",
              values->size(),
              rotary_dim,
              rotary_dim / 2));
    }
    if (values->empty()) {
      values->assign(static_cast<size_t>(std::max<int64_t>(rotary_dim / 2, 0)), 1.0);
    }
  }
}

void parse_by_type(ConfigReader& reader, Rope& rope, int64_t rotary_dim) {
  rope.factor = reader.optional_number("factor", 1e-6, kLargestFactor);
  switch (rope.type) {
    case RopeType::kLinear:
      need(reader, "factor", "linear");
      break;
    case RopeType::kDynamic:
      need(reader, "factor", "dynamic");
      if (rotary_dim <= 2) {
        reader.problem("rope_type", "\"dynamic\" requires a rotary dim of more than 2");
      }
      break;
    case RopeType::kLlama3:
      for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
        need(reader, key, "llama3");
      }
      rope.low_frequency_factor = reader.number("low_freq_factor", 1, 1e-6, kLargestFactor);
      rope.high_frequency_factor = reader.number("high_freq_factor", 4, 1e-6, kLargestFactor);
      if (rope.high_frequency_factor <= rope.low_frequency_factor) {
        reader.problem("high_freq_factor", "is not larger than low_freq_factor");
      }
      break;
    case RopeType::kYarn:
      rope.beta_fast = reader.number("beta_fast", 32, 0, kLargestFactor);
      rope.beta_slow = reader.number("beta_slow", 1, 0, kLargestFactor);
      // transformers treats zero as missing.
      rope.beta_fast = rope.beta_fast == 0 ? 32 : rope.beta_fast;
      rope.beta_slow = rope.beta_slow == 0 ? 1 : rope.beta_slow;
      rope.mscale = reader.optional_number("mscale", 0, kLargestFactor);
      rope.mscale_all_dim = reader.optional_number("mscale_all_dim", 0, kLargestFactor);
      rope.truncate = reader.boolean("truncate", true);
      if (rope.theta <= 1) {
        reader.problem("rope_theta", "rope_type \"yarn\" requires a value above 1");
      }
      break;
    case RopeType::kLongRope:
      parse_longrope(reader, rope, rotary_dim);
      break;
    default:
      break;
  }
  if (rope.type == RopeType::kYarn || rope.type == RopeType::kLongRope) {
    rope.attention_factor = reader.optional_number("attention_factor", 0, kLargestFactor);
  }
}

/// Returns true if transformers reads partial_rotary_factor in this family for the default rope
/// type too. For scaled types, every family reads it.
bool reads_partial_factor(Family family) {
  switch (family) {
    case Family::kPhi3:
    case Family::kGptNeoX:
    case Family::kGlm:
    case Family::kGlm4:
    case Family::kChatGlm:
    case Family::kGlm4Moe:
      return true;
    default:
      return false;
  }
}

/// Parses the family's own keys in `outer` and the remaining keys in `inner`.
Rope parse_values(
    ConfigReader& outer, ConfigReader& inner, const ModelConfig& config, const RopeKeys& keys) {
  const auto number =
      [&](const char* key, const char* outside, double fallback, double least, double most) {
        const double given =
            outside == nullptr ? fallback : outer.number(outside, fallback, least, most);
        return inner.number(key, given, least, most);
      };
  Rope rope;
  rope.type = parse_type(inner, keys);
  rope.theta = number("rope_theta", keys.theta_key, keys.theta, 1, kLargestTheta);
  rope.partial_rotary_factor =
      number("partial_rotary_factor", keys.partial_key, keys.partial_rotary_factor, 0, 1);
  if (rope.type == RopeType::kDefault && rope.partial_rotary_factor != 1 &&
      !reads_partial_factor(config.family)) {
    warn_on_first_rank(fmt::format(
        "config.json: partial_rotary_factor {} is ignored, as in transformers, for {} with "
        "rope_type \"default\"",
        rope.partial_rotary_factor,
        family_name(config.family)));
    rope.partial_rotary_factor = 1;
  }
  const int64_t rotary_dim = config.rotary_dim(rope);
  if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    outer.problem(
        "head_dim",
        fmt::format(
            "rotary positions rotate {} of {} elements of a head; the number must be even and 2 or "
            "more",
            rotary_dim,
            config.head_dim));
  }
  parse_by_type(inner, rope, rotary_dim);
  if (rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn ||
      rope.type == RopeType::kLongRope) {
    // The outer key takes precedence.
    const char* key = "original_max_position_embeddings";
    const int64_t fallback =
        keys.original_max_positions > 0 ? keys.original_max_positions : config.max_positions;
    rope.original_max_positions = outer.integer(
        key, inner.integer(key, fallback, 1, kMostRopePositions), 1, kMostRopePositions);
    if (rope.type == RopeType::kLongRope && rope.original_max_positions < 2) {
      outer.problem(key, "rope_type \"longrope\" requires 2 or more");
    }
  }
  return rope;
}

/// Returns the object at a key. If the value has another type, records a problem and returns an
/// empty object.
const json& object_at(ConfigReader& reader, const char* key) {
  static const json empty = json::object();
  if (!reader.has(key)) {
    return empty;
  }
  const json& found = reader.object().at(key);
  if (!found.is_object()) {
    reader.problem(key, fmt::format("{} is not an object", shown(found)));
    return empty;
  }
  return found;
}

}  // namespace

Rope parse_rope(ConfigReader& reader, const ModelConfig& config, const RopeKeys& keys) {
  const json* values = &object_at(reader, "rope_parameters");
  std::string where = "rope_parameters.";
  if (const json& scaling = object_at(reader, "rope_scaling"); !scaling.empty()) {
    values = &scaling;  // last non-empty object applies
    where = "rope_scaling.";
  }
  ConfigReader inner(*values, where, reader.problems());
  for (const auto& [key, value] : values->items()) {
    if (value.is_object()) {
      inner.problem(key, "rotary positions that differ from layer to layer are not supported");
      return Rope{};
    }
  }
  return parse_values(reader, inner, config, keys);
}

void parse_ropes_by_layer(
    ConfigReader& reader, ModelConfig& config, const RopeKeys& full, const RopeKeys& sliding) {
  const json& parameters = object_at(reader, "rope_parameters");
  for (const auto& [key, value] : parameters.items()) {
    if (!value.is_object() || (key != "full_attention" && key != "sliding_attention")) {
      reader.problem(
          "rope_parameters",
          fmt::format(
              "\"{}\" is not supported: {} requires an object for full_attention and one for "
              "sliding_attention",
              key,
              family_name(config.family)));
      return;
    }
  }
  ConfigReader by_type(parameters, "rope_parameters.", reader.problems());
  json of_full = object_at(by_type, "full_attention");
  of_full.update(object_at(reader, "rope_scaling"));
  ConfigReader inner(of_full, "rope_parameters.full_attention.", reader.problems());
  config.rope = parse_values(reader, inner, config, full);
  ConfigReader inner_sliding(
      object_at(by_type, "sliding_attention"),
      "rope_parameters.sliding_attention.",
      reader.problems());
  config.window_rope = parse_values(reader, inner_sliding, config, sliding);
}

}  // namespace lockstep::model
