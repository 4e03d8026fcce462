// Visitor over all configuration fields, used for files, flags, --help, printing and the JSON
// schema.
//
// visit_fields(section, visitor) calls, for each field in order,
// visitor(Field{name, help, choices}, value)          if value is a scalar, an optional or a list
// visitor.section(Field{name, help, {}}, section)     if it is a nested struct
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "config/core/choices.h"
#include "config/core/config.h"

namespace lockstep::config {

/// Description of a field.
struct Field {
  std::string_view name;
  std::string_view help;
  /// Allowed values of a string field; empty: any.
  std::span<const std::string_view> choices = {};
};

#define VISIT(Type)                                             \
  template <class Section, class Visitor>                       \
    requires std::is_same_v<std::remove_const_t<Section>, Type> \
  void visit_fields(Section& section, Visitor&& visitor)
#define FIELD(type, name, value, ...) visitor(Field{#name, __VA_ARGS__}, section.name);
#define SECTION(type, name, help) visitor.section(Field{#name, help}, section.name);

VISIT(ModelSection) {
#include "config/core/sections/model.def"
}
VISIT(LoraSection) {
#include "config/core/sections/lora.def"
}
VISIT(QuantizationSection) {
#include "config/core/sections/quantization.def"
}
VISIT(TokenizerSection) {
#include "config/core/sections/tokenizer.def"
}
VISIT(TaskSection) {
#include "config/core/sections/task.def"
}
VISIT(GenerativeSection) {
#include "config/core/sections/generative.def"
}
VISIT(PreferenceSection) {
#include "config/core/sections/preference.def"
}
VISIT(UnlearningSection) {
#include "config/core/sections/unlearning.def"
}
VISIT(DataSection) {
#include "config/core/sections/data.def"
}
VISIT(SchedulerArguments) {
#include "config/core/sections/scheduler.def"
}
VISIT(TrainingSection) {
#include "config/core/sections/training.def"
}
VISIT(OffloadSection) {
#include "config/core/sections/offload.def"
}
VISIT(OptimizerOffloadSection) {
#include "config/core/sections/optimizer_offload.def"
}
VISIT(ParallelSection) {
#include "config/core/sections/parallel.def"
}
VISIT(LossScaleSection) {
#include "config/core/sections/loss_scale.def"
}
VISIT(PrecisionSection) {
#include "config/core/sections/precision.def"
}
VISIT(CheckpointSection) {
#include "config/core/sections/checkpoint.def"
}
VISIT(MonitorSection) {
#include "config/core/sections/monitor.def"
}

#undef FIELD
#undef SECTION
#undef VISIT

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, Config>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor.section({"model", "The model"}, section.model);
  visitor.section({"lora", "LoRA adapters, with PEFT's names"}, section.lora);
  visitor.section({"quantization", "4-bit and 8-bit weights"}, section.quantization);
  visitor.section({"tokenizer", "The tokenizer"}, section.tokenizer);
  visitor.section({"task", "Training task"}, section.task);
  visitor.section(
      {"generative", "Used with task.type=generative_classification"}, section.generative);
  visitor.section(
      {"preference", "Used with task.type=preference and reward_model"}, section.preference);
  visitor.section({"unlearning", "Used with task.type=unlearning"}, section.unlearning);
  visitor.section({"data", "The data"}, section.data);
  visitor.section(
      {"training", "Training settings, with the names of Hugging Face's TrainingArguments"},
      section.training);
  visitor.section({"parallel", "Parallelism and memory"}, section.parallel);
  visitor.section(
      {"precision", "Precision settings that TrainingArguments does not have"}, section.precision);
  visitor.section({"checkpoint", "Checkpoints"}, section.checkpoint);
  visitor.section({"monitor", "Monitoring and progress output"}, section.monitor);
}

}  // namespace lockstep::config
