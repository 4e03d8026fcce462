// One visitor of every field of the configuration. It drives files, flags, --help, printing and the
// JSON schema.
//
// visit_fields(section, visitor) calls, for each field in order,
//   visitor(Field{name, help, choices}, value)           where value is a scalar, an optional or a
//   list, and visitor.section(Field{name, help, {}}, section)      where it is a struct with fields
//   of its own.
#pragma once

#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/data.h"
#include "config/core/fields/field.h"
#include "config/core/fields/lora.h"
#include "config/core/fields/parallel.h"
#include "config/core/fields/preference.h"
#include "config/core/fields/run.h"
#include "config/core/fields/training.h"

namespace lockstep::config {

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, Config>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor.section({"model", "The model"}, section.model);
  visitor.section({"lora", "Adapters, by PEFT's names"}, section.lora);
  visitor.section({"tokenizer", "The tokenizer"}, section.tokenizer);
  visitor.section({"task", "What the model is trained for"}, section.task);
  visitor.section({"preference", "For task.type=preference and reward_model"}, section.preference);
  visitor.section({"data", "The data"}, section.data);
  visitor.section({"training", "Hugging Face's TrainingArguments"}, section.training);
  visitor.section({"parallel", "How ranks share the work"}, section.parallel);
  visitor.section(
      {"precision", "Numbers: what TrainingArguments have no name for"}, section.precision);
  visitor.section({"checkpoint", "Checkpoints"}, section.checkpoint);
  visitor.section({"monitor", "What is shown"}, section.monitor);
}

}  // namespace lockstep::config
