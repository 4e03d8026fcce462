// The fields of preference.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kPreferenceObjectives[] = {
    "dpo", "ipo", "kto", "simpo", "cpo", "orpo"};
inline constexpr std::string_view kPreferenceLosses[] = {
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
    "simpo",
    "kto",
    "apo_zero_unpaired"};
inline constexpr std::string_view kTruncationModes[] = {"keep_start", "keep_end"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, PreferenceSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"objective",
       "dpo and ipo compare pairs with a reference, the model as it was; kto judges answers one by "
       "one; simpo, cpo and orpo need no reference",
       choices::kPreferenceObjectives},
      section.objective);
  visitor(
      {"loss_type",
       "Of dpo, cpo and kto, the loss of a pair or of an answer, by TRL's names; null: sigmoid, of "
       "kto kto",
       choices::kPreferenceLosses},
      section.loss_type);
  visitor(
      {"beta",
       "How strongly answers are told apart, and how near the reference the model stays; null: "
       "0.1, of simpo 2"},
      section.beta);
  visitor(
      {"label_smoothing", "The share of pairs whose answers are taken for swapped"},
      section.label_smoothing);
  visitor(
      {"reference_free",
       "For dpo and ipo: compare with a model to which all answers are equally likely"},
      section.reference_free);
  visitor(
      {"rpo_alpha",
       "For dpo: the weight of the chosen answers' -log p, the mean of a token, that is added; "
       "null: none is"},
      section.rpo_alpha);
  visitor(
      {"discopop_tau", "For dpo with loss_type=discopop: how sharply its two losses are mixed"},
      section.discopop_tau);
  visitor(
      {"simpo_gamma",
       "For simpo: how far the reward of the chosen answer is to be above the other's"},
      section.simpo_gamma);
  visitor(
      {"cpo_alpha",
       "For cpo: the weight of the chosen answers' -log p, the mean of a token, that is added"},
      section.cpo_alpha);
  visitor({"desirable_weight", "For kto: the weight of wanted answers"}, section.desirable_weight);
  visitor(
      {"undesirable_weight", "For kto: the weight of unwanted answers"},
      section.undesirable_weight);
  visitor(
      {"center_rewards_coefficient",
       "For task.type=reward_model: how strongly the rewards of a pair are drawn around 0; null: "
       "not"},
      section.center_rewards_coefficient);
  visitor(
      {"max_prompt_length",
       "The most tokens of a prompt, whose end is kept; null: as many as data.sequence_length "
       "leaves"},
      section.max_prompt_length);
  visitor(
      {"truncation_mode",
       "Which end of a row that is longer than data.sequence_length is kept",
       choices::kTruncationModes},
      section.truncation_mode);
  visitor(
      {"disable_dropout", "Train without dropout, as TRL does, whatever config.json says"},
      section.disable_dropout);
  visitor(
      {"precompute_ref_log_probs",
       "The reference's scores are computed once, before the first step, in any case"},
      section.precompute_ref_log_probs);
  visitor(
      {"precompute_ref_batch_size",
       "Rows or pairs that are scored at once; null: per_device_eval_batch_size"},
      section.precompute_ref_batch_size);
}

}  // namespace lockstep::config
