// The fields of precision, checkpoint and monitor.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kReduceTypes[] = {"auto", "float32", "bfloat16", "float16"};
inline constexpr std::string_view kOnSignal[] = {"save", "save_and_stop", "ignore"};
inline constexpr std::string_view kProgressForms[] = {"auto", "line", "plain", "none"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, LossScaleSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor({"fixed", "The factor, for ever; 0: it follows overflows"}, section.fixed);
  visitor({"initial_power", "The factor begins at 2 to this"}, section.initial_power);
  visitor({"window", "Steps without an overflow before the factor doubles"}, section.window);
  visitor({"hysteresis", "Overflows before the factor halves"}, section.hysteresis);
  visitor(
      {"consecutive_hysteresis",
       "Good steps make up for overflows at once, not only when the factor doubles"},
      section.consecutive_hysteresis);
  visitor({"minimum", "The least that the factor falls to"}, section.minimum);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, PrecisionSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"stochastic_rounding",
       "Keep no float32 masters of bfloat16 weights: updates are rounded up or down at random"},
      section.stochastic_rounding);
  visitor(
      {"reduce_type",
       "Type in which gradients are sent and summed over ranks; auto: that in which they are "
       "accumulated",
       choices::kReduceTypes},
      section.reduce_type);
  visitor.section(
      {"loss_scale", "The factor that keeps float16 gradients from vanishing"}, section.loss_scale);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, CheckpointSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"compare_replicas",
       "Every so many steps, and before each checkpoint, compare what several ranks hold alike, "
       "and end with the rank that differs; 0: never"},
      section.compare_replicas);
  visitor({"verify", "Compare every chunk's hash when a checkpoint is loaded"}, section.verify);
  visitor(
      {"async", "Write checkpoints while training goes on, from a copy in host memory"},
      section.async);
  visitor(
      {"allow_other_data",
       "Resume on other data, tokens or rows than those that the checkpoint was trained on"},
      section.allow_other_data);
  visitor(
      {"on_usr1",
       "What SIGUSR1 does to a run after the step: save, save_and_stop or ignore",
       choices::kOnSignal},
      section.on_usr1);
  visitor(
      {"on_usr2",
       "What SIGUSR2 does to a run after the step: save, save_and_stop or ignore",
       choices::kOnSignal},
      section.on_usr2);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, MonitorSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"progress",
       "auto: one live line on a terminal, plain lines elsewhere; line, plain or none to choose",
       choices::kProgressForms},
      section.progress);
  visitor(
      {"peak_tflops",
       "Peak of one device in matrix products, TFLOP/s, for the share of the peak; null: measured"},
      section.peak_tflops);
  visitor(
      {"log_memory",
       "Tell the memory of the fullest rank by kind, at each phase, with every logged step"},
      section.log_memory);
}

}  // namespace lockstep::config
