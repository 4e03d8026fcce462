// The flags of packed weights that several commands have.
#pragma once

#include <CLI/CLI.hpp>

#include "train/weights/quantization.h"

namespace lockstep::cli {

/// --bits, --quant-type, --double-quant.
inline void add_quantization_flags(CLI::App& app, train::QuantizationFlags& flags) {
  auto* bits = app.add_option("--bits", flags.bits, "Pack the linears' weights in 4 or 8 bits")
                   ->check(CLI::IsMember({4, 8}));
  app.add_option("--quant-type,--quant_type", flags.type, "Of 4 bits")
      ->check(CLI::IsMember({"nf4", "fp4"}))
      ->needs(bits);
  app.add_flag(
         "--double-quant,--double_quant",
         flags.double_quant,
         "Of 4 bits: pack the scales of blocks too")
      ->needs(bits);
}

}  // namespace lockstep::cli
