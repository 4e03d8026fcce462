// Computes rotary position frequencies for all rope types.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lockstep::model {
namespace {

/// Returns theta^(2i/d) with float32 rounding: first of the exponent, then of the power.
std::vector<float> powers(double theta, int64_t rotary_dim) {
  std::vector<float> result;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    result.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return result;
}

std::vector<float> inverse(const std::vector<float>& values) {
  std::vector<float> result;
  for (const float value : values) {
    result.push_back(1.0F / value);
  }
  return result;
}

std::vector<float> llama3(const Rope& rope, const std::vector<float>& plain) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const double factor = rope.factor.value_or(1);
  const double low_wavelength = original / rope.low_frequency_factor;
  const double high_wavelength = original / rope.high_frequency_factor;
  std::vector<float> result;
  for (const float frequency : plain) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    double value = frequency;
    if (wavelength > low_wavelength) {
      value /= factor;
    } else if (!(wavelength < high_wavelength)) {
      const double smooth = (original / wavelength - rope.low_frequency_factor) /
                            (rope.high_frequency_factor - rope.low_frequency_factor);
      value = (1 - smooth) * value / factor + smooth * value;
    }
    result.push_back(static_cast<float>(value));
  }
  return result;
}

double yarn_scale(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * std::log(factor) + 1;
}

RopeFrequencies yarn(const ModelConfig& config, const Rope& rope) {
  const int64_t dim = config.rotary_dim(rope);
  const auto original = static_cast<double>(rope.original_max_positions);
  const double factor = rope.factor.value_or(static_cast<double>(config.max_positions) / original);
  // Bounds of equation 17 as dims: the dim that makes `rotations` turns over the original length.
  const auto correction = [&](double rotations) {
    return static_cast<double>(dim) * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) {
    high += 0.001;
  }
  RopeFrequencies result;
  const auto plain = powers(rope.theta, dim);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double kept = 1.0 / plain[i], stretched = 1.0 / (factor * plain[i]);
    result.frequencies.push_back(static_cast<float>(stretched * ramp + kept * (1 - ramp)));
  }
  double attention = yarn_scale(factor, 1);
  if (rope.attention_factor) {
    attention = *rope.attention_factor;
  } else if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    attention = yarn_scale(factor, *rope.mscale) / yarn_scale(factor, *rope.mscale_all_dim);
  }
  result.attention_factor = static_cast<float>(attention);
  return result;
}

RopeFrequencies longrope(const ModelConfig& config, const Rope& rope, int64_t length) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto& stretch = length > rope.original_max_positions ? rope.long_factor : rope.short_factor;
  RopeFrequencies result;
  const auto plain = powers(rope.theta, config.rotary_dim(rope));
  for (size_t i = 0; i < plain.size(); ++i) {
    result.frequencies.push_back(1.0F / (static_cast<float>(stretch.at(i)) * plain[i]));
  }
  const double factor = rope.factor.value_or(static_cast<double>(config.max_positions) / original);
  result.attention_factor = static_cast<float>(rope.attention_factor.value_or(
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original))));
  return result;
}

double dynamic_theta(const ModelConfig& config, const Rope& rope, int64_t length) {
  const auto most = static_cast<double>(config.max_positions);
  const double now = std::max(static_cast<double>(length), most);
  const double factor = rope.factor.value_or(1);
  const auto dim = static_cast<double>(config.rotary_dim(rope));
  return rope.theta * std::pow(factor * now / most - (factor - 1), dim / (dim - 2));
}

}  // namespace

bool rope_depends_on_length(const ModelConfig& config) {
  const auto depends = [](const Rope& rope) {
    return rope.type == RopeType::kDynamic || rope.type == RopeType::kLongRope;
  };
  return depends(config.rope) || (config.window_rope && depends(*config.window_rope));
}

RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length) {
  return rope_frequencies(config, config.rope, length);
}

RopeFrequencies rope_frequencies(const ModelConfig& config, const Rope& rope, int64_t length) {
  const int64_t dim = config.rotary_dim(rope);
  switch (rope.type) {
    case RopeType::kDefault:
      return {inverse(powers(rope.theta, dim)), 1};
    case RopeType::kLinear: {
      RopeFrequencies result{inverse(powers(rope.theta, dim)), 1};
      for (float& frequency : result.frequencies) {
        frequency /= static_cast<float>(rope.factor.value_or(1));
      }
      return result;
    }
    case RopeType::kDynamic:
      return {inverse(powers(dynamic_theta(config, rope, length), dim)), 1};
    case RopeType::kLlama3:
      return {llama3(rope, inverse(powers(rope.theta, dim))), 1};
    case RopeType::kYarn:
      return yarn(config, rope);
    case RopeType::kLongRope:
      return longrope(config, rope, length);
    case RopeType::kNone:
      break;
  }
  throw Error(ErrorKind::kInternal, "the model has no rotary positions");
}

}  // namespace lockstep::model
