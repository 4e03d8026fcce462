// Typed configuration of a job as plain nested structs. Field names are key names. Each field's
// type, default and help are defined in config/core/sections/. config/core/fields.h visits the
// fields, and config/resolve.h fills them from files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::config {

#define FIELD(type, name, value, ...) type name = value;
#define SECTION(type, name, help) type name;

/// Ordered map from user-defined names to numbers.
using NumberMap = std::vector<std::pair<std::string, double>>;

/// One source of data.mixture.
struct MixtureSource {
  std::string name;                // empty: name of the first file
  std::vector<std::string> files;  // same syntax as data.train
  double weight = 1;               // divided by the sum of all weights
  std::optional<int64_t> max_epochs;
  bool operator==(const MixtureSource&) const = default;
};
using Mixture = std::vector<MixtureSource>;

/// Model architecture and weights. Exactly one of path and preset is set.
struct ModelSection {
#include "config/core/sections/model.def"
};

/// LoRA adapters (Hu et al., "LoRA", 2021), with PEFT's names. If any key is set, the base weights
/// are frozen and low-rank factors of linear layers are trained.
struct LoraSection {
#include "config/core/sections/lora.def"
  bool operator==(const LoraSection&) const = default;
};

/// Quantization of frozen base weights to 4 or 8 bits for adapter training (Dettmers et al.,
/// "QLoRA", 2023). BitsAndBytesConfig names are accepted as aliases; settle() moves their values to
/// the section's own names.
struct QuantizationSection {
#include "config/core/sections/quantization.def"
  bool operator==(const QuantizationSection&) const = default;
};

struct TokenizerSection {
#include "config/core/sections/tokenizer.def"
};

/// Training task.
struct TaskSection {
#include "config/core/sections/task.def"
};

/// Settings of task.type=generative_classification, which generates labels as text.
struct GenerativeSection {
#include "config/core/sections/generative.def"
};

/// Settings of task.type=preference, with the names of TRL's DPO, KTO, CPO and ORPO trainers.
struct PreferenceSection {
#include "config/core/sections/preference.def"
};

/// Settings of task.type=unlearning, with the names and formulas of open-unlearning.
struct UnlearningSection {
#include "config/core/sections/unlearning.def"
};

/// Training and evaluation data.
struct DataSection {
#include "config/core/sections/data.def"
};

/// Arguments of the learning-rate schedule (lr_scheduler_kwargs). Unset arguments use the
/// schedule's defaults.
struct SchedulerArguments {
#include "config/core/sections/scheduler.def"
};

/// Hugging Face's TrainingArguments, with the same names and defaults. A step is one optimizer
/// update. Rules for the other names in TrainingArguments are in config/core/trainer_keys.cpp.
struct TrainingSection {
#include "config/core/sections/training.def"
};

/// Storage location of one kind of state.
struct OffloadSection {
#include "config/core/sections/offload.def"
};

struct OptimizerOffloadSection {
#include "config/core/sections/optimizer_offload.def"
};

/// Parallelism. data x pipeline x context x tensor equals the number of ranks.
struct ParallelSection {
#include "config/core/sections/parallel.def"
};

/// Loss scaling, which prevents float16 gradients from underflowing.
struct LossScaleSection {
#include "config/core/sections/loss_scale.def"
};

/// Precision settings without an equivalent in TrainingArguments.
struct PrecisionSection {
#include "config/core/sections/precision.def"
};

/// Checkpoint settings without an equivalent in TrainingArguments.
struct CheckpointSection {
#include "config/core/sections/checkpoint.def"
};

struct MonitorSection {
#include "config/core/sections/monitor.def"
};

#undef FIELD
#undef SECTION

/// The whole configuration. Resolved once and passed by const reference; functions take the
/// narrowest section that they need.
struct Config {
  ModelSection model;
  LoraSection lora;
  QuantizationSection quantization;
  TokenizerSection tokenizer;
  TaskSection task;
  GenerativeSection generative;
  PreferenceSection preference;
  UnlearningSection unlearning;
  DataSection data;
  TrainingSection training;
  ParallelSection parallel;
  PrecisionSection precision;
  CheckpointSection checkpoint;
  MonitorSection monitor;
};

}  // namespace lockstep::config
