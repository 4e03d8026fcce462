// The flags of saved adapters that several commands have.
#pragma once

#include <CLI/CLI.hpp>

#include "train/weights/adapters.h"

namespace lockstep::cli {

inline constexpr const char* kAdapterHelp =
    "An adapter of the model: a folder of PEFT's, or an output_dir; several times for several";
inline constexpr const char* kAdapterWeightHelp =
    "What an adapter adds is multiplied by this: one for each --adapter, in their order";
inline constexpr const char* kAdapterCombinationHelp =
    "Of several adapters: cat, the sum of what they add; linear, of their factors (PEFT's names)";

/// --adapter, --adapter-weight, --adapter-combination; the first.
inline CLI::Option* add_adapter_flags(CLI::App& app, train::AdapterFlags& flags) {
  auto* adapter = app.add_option("--adapter", flags.folders, kAdapterHelp)->allow_extra_args(false);
  app.add_option("--adapter-weight,--adapter_weight", flags.weights, kAdapterWeightHelp)
      ->allow_extra_args(false)
      ->needs(adapter);
  app.add_option(
         "--adapter-combination,--adapter_combination", flags.combination, kAdapterCombinationHelp)
      ->check(CLI::IsMember({"cat", "linear"}))
      ->needs(adapter);
  return adapter;
}

}  // namespace lockstep::cli
