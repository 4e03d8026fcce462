// One visitor of every field of the configuration. It drives files, flags, --help, printing and the
// JSON schema.
//
// visit_fields(section, visitor) calls, for each field in order,
//   visitor(Field{name, help, choices}, value)           where value is a scalar, an optional or a
//   list, and visitor.section(Field{name, help, {}}, section)      where it is a struct with fields
//   of its own.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "config/core/choices.h"
#include "config/core/config.h"

namespace lockstep::config {

/// What is known of a field beside its value.
struct Field {
  std::string_view name;
  std::string_view help;
  /// The words that a string field may be; empty: any.
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
  visitor.section({"lora", "Adapters, by PEFT's names"}, section.lora);
  visitor.section({"quantization", "Weights in 4 or 8 bits"}, section.quantization);
  visitor.section({"tokenizer", "The tokenizer"}, section.tokenizer);
  visitor.section({"task", "What the model is trained for"}, section.task);
  visitor.section({"generative", "For task.type=generative_classification"}, section.generative);
  visitor.section({"preference", "For task.type=preference and reward_model"}, section.preference);
  visitor.section({"unlearning", "For task.type=unlearning"}, section.unlearning);
  visitor.section({"data", "The data"}, section.data);
  visitor.section({"training", "Hugging Face's TrainingArguments"}, section.training);
  visitor.section({"parallel", "How ranks share the work"}, section.parallel);
  visitor.section(
      {"precision", "Numbers: what TrainingArguments have no name for"}, section.precision);
  visitor.section({"checkpoint", "Checkpoints"}, section.checkpoint);
  visitor.section({"monitor", "What is shown"}, section.monitor);
}

}  // namespace lockstep::config
