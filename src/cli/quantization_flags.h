// Command-line flags for quantized weights, shared by several commands.
#pragma once

#include <CLI/CLI.hpp>

#include "train/weights/quantization.h"

namespace lockstep::cli {

/// Adds --bits, --quant-type and --double-quant.
inline void add_quantization_flags(CLI::App& app, train::QuantizationFlags& flags) {
  auto* bits =
      app.add_option("--bits", flags.bits, "Quantize the weights of linears to 4 or 8 bits. int")
          ->check(CLI::IsMember({4, 8}));
  app.add_option("--quant-type,--quant_type", flags.type, "Of 4 bits")
      ->check(CLI::IsMember({"nf4", "fp4"}))
      ->needs(bits);
  app.add_flag(
         "--double-quant,--double_quant",
         flags.double_quant,
         "Also quantize the block scales (4 bits only)")
      ->needs(bits);
}

}  // namespace lockstep::cli
