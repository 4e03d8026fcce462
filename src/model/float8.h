// Configuration of float8 products: the linear layers that use them and the scaling of operands
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
    kTensor,  // one scale per operand
    kRow,     // one scale per row
  };
  Scaling scaling = Scaling::kTensor;
  int64_t first = 1, last = 1;  // number of blocks at the start and end that are not converted

  bool operator==(const Float8&) const = default;
};

/// Parses "row", "tensor", "rowwise" or "tensorwise". Returns nullopt for other values.
std::optional<Float8::Scaling> float8_scaling(std::string_view name);
std::string_view name_of(Float8::Scaling scaling);

/// Returns the number of blocks with float8 products. Throws Error (kConfig) if there is none.
int64_t float8_blocks(const Float8& float8, const ModelConfig& model);
/// Returns the linear layers that use float8, by parameter prefix: those in blocks that are not
/// excluded, except the gate of a shared expert. Embeddings, heads and routers are excluded. Throws
/// Error (kConfig) if no layer remains, or if scales are per tensor and the model has experts,
/// whose rows include tokens of other ranks.
std::set<std::string> float8_linears(const Float8& float8, const ModelConfig& model);

}  // namespace lockstep::model
