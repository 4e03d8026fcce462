// Which of a model's products are made in 8-bit floats, and how their operands are scaled
// (Micikevicius et al., "FP8 Formats for Deep Learning", 2022).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::model {

struct ModelConfig;

struct Float8 {
  enum class Scaling {
    kTensor,  // one scale for all numbers of an operand
    kRow,     // one for each row of it
  };
  Scaling scaling = Scaling::kTensor;
  int64_t first = 1, last = 1;  // blocks at both ends that keep their products as they are

  bool operator==(const Float8&) const = default;
};

/// "row" or "tensor", or "rowwise" or "tensorwise"; nothing for another word.
std::optional<Float8::Scaling> float8_scaling(std::string_view name);
std::string_view name_of(Float8::Scaling scaling);

/// The blocks whose products are in 8 bits. Error (kConfig): none is.
int64_t float8_blocks(const Float8& float8, const ModelConfig& model);
/// The linears whose products are in 8 bits, by the prefixes of their names: those of the blocks
/// between the first and the last ones, but what weighs a shared expert. Embeddings, heads and
/// routers are none of them. Error (kConfig) where nothing is left, or each tensor is to have one
/// scale and the model has experts, whose rows other ranks' tokens are among.
std::set<std::string> float8_linears(const Float8& float8, const ModelConfig& model);

}  // namespace lockstep::model
