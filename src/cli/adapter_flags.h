// Command-line flags for saved adapters, shared by several commands.
#pragma once

#include <CLI/CLI.hpp>

#include "train/weights/adapters.h"

namespace lockstep::cli {

inline constexpr const char* kAdapterHelp =
    "Adapter of the model: a PEFT folder or an output_dir. path; repeatable";
inline constexpr const char* kAdapterWeightHelp =
    "Weight of each --adapter, in their order. float; repeatable; default: 1";
inline constexpr const char* kAdapterCombinationHelp =
    "Combination of several adapters, as in PEFT. string: cat (sum of their outputs) or linear "
    "(sum of their factors)";

/// Adds --adapter, --adapter-weight and --adapter-combination. Returns the option --adapter.
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
