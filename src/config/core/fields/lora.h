// The fields of lora.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kLoraBiases[] = {"none", "all", "lora_only"};
inline constexpr std::string_view kLoraInitial[] = {"true", "false", "gaussian"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, LoraSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"config", "A file adapter_config.json of PEFT's, over which the other keys go"},
      section.config);
  visitor(
      {"adapter", "A folder of PEFT's to go on from: its configuration, and its adapter's values"},
      section.adapter);
  visitor({"r", "The rank of the factors, their inner size; null: 8"}, section.r);
  visitor(
      {"lora_alpha", "What the factors add is multiplied by this, divided by r; null: 8"},
      section.lora_alpha);
  visitor(
      {"lora_dropout", "Dropout of what the factors read, from 0 to below 1; null: 0"},
      section.lora_dropout);
  visitor(
      {"target_modules",
       "The linears that get factors: ends of their names (q_proj, mlp.c_fc), one regular "
       "expression of whole names, or all-linear; empty: the usual ones of the model's family"},
      section.target_modules);
  visitor(
      {"exclude_modules", "Linears that get none: ends of names, or one regular expression"},
      section.exclude_modules);
  visitor(
      {"modules_to_save",
       "Modules that are trained whole, as they are, and saved with the factors"},
      section.modules_to_save);
  visitor(
      {"bias",
       "Biases that are trained too: all, or lora_only, those of layers with factors; null: none",
       choices::kLoraBiases},
      section.bias);
  visitor(
      {"use_rslora", "Divide lora_alpha by the root of r instead of r; null: false"},
      section.use_rslora);
  visitor(
      {"use_dora",
       "Train the weights' directions by factors, and their sizes by themselves; null: false"},
      section.use_dora);
  visitor(
      {"init_lora_weights",
       "How the factors begin: true and gaussian add nothing at first, false does; null: true",
       choices::kLoraInitial},
      section.init_lora_weights);
  visitor(
      {"layers_to_transform", "Numbers of the layers that get factors; empty: all"},
      section.layers_to_transform);
  visitor(
      {"layers_pattern",
       "Names of the lists of layers that layers_to_transform counts in; empty: any"},
      section.layers_pattern);
  visitor(
      {"rank_pattern",
       "Other ranks: of linears whose names end in what a regular expression matches"},
      section.rank_pattern);
  visitor({"alpha_pattern", "Other values of lora_alpha, likewise"}, section.alpha_pattern);
  visitor(
      {"ensure_weight_tying",
       "Train an embedding of modules_to_save that is the head's weight too as both; null: false"},
      section.ensure_weight_tying);
}

}  // namespace lockstep::config
