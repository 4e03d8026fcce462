// The configuration of a job: plain nested structs. Field names are the names that users type, and
// the defaults are the program's. What each field is, its default and its help are one line of
// config/core/sections/; config/core/fields.h visits them, and config/resolve.h fills them from
// files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::config {

#define FIELD(type, name, value, ...) type name = value;
#define SECTION(type, name, help) type name;

/// Names that a user chooses, each with a number, in their order.
using NumberMap = std::vector<std::pair<std::string, double>>;

/// A source of data.mixture.
struct MixtureSource {
  std::string name;                // empty: its first file
  std::vector<std::string> files;  // as data.train names them
  double weight = 1;               // its share is this over the sum of all
  std::optional<int64_t> max_epochs;
  bool operator==(const MixtureSource&) const = default;
};
using Mixture = std::vector<MixtureSource>;

/// Which model, and where its weights come from. Exactly one of path and preset is given.
struct ModelSection {
#include "config/core/sections/model.def"
};

/// Adapters, by PEFT's names: where any key is given the model's own weights stay as they are, and
/// low-rank factors beside its linears are trained (Hu et al., "LoRA", 2021).
struct LoraSection {
#include "config/core/sections/lora.def"
  bool operator==(const LoraSection&) const = default;
};

/// Weights in 4 or 8 bits beside which adapters are trained (Dettmers et al., "QLoRA", 2023). The
/// names of BitsAndBytesConfig are other names; settle() leaves the section's own alone.
struct QuantizationSection {
#include "config/core/sections/quantization.def"
  bool operator==(const QuantizationSection&) const = default;
};

struct TokenizerSection {
#include "config/core/sections/tokenizer.def"
};

/// What the model is trained for.
struct TaskSection {
#include "config/core/sections/task.def"
};

/// For task.type=generative_classification: labels as texts.
struct GenerativeSection {
#include "config/core/sections/generative.def"
};

/// For task.type=preference: names are those of TRL's DPO, KTO, CPO and ORPO trainers.
struct PreferenceSection {
#include "config/core/sections/preference.def"
};

/// For task.type=unlearning: names and formulas are those of open-unlearning.
struct UnlearningSection {
#include "config/core/sections/unlearning.def"
};

/// What is trained and evaluated on.
struct DataSection {
#include "config/core/sections/data.def"
};

/// Arguments of the learning-rate schedule (lr_scheduler_kwargs): those that the schedule takes and
/// that are not given have its own defaults.
struct SchedulerArguments {
#include "config/core/sections/scheduler.def"
};

/// Hugging Face's TrainingArguments, by their names and with their defaults. One step is one
/// optimizer update. Names that this program knows but that are no field here are in
/// config/core/trainer_keys.cpp, each with its rule.
struct TrainingSection {
#include "config/core/sections/training.def"
};

/// Where a kind of state lives.
struct OffloadSection {
#include "config/core/sections/offload.def"
};

struct OptimizerOffloadSection {
#include "config/core/sections/optimizer_offload.def"
};

/// How ranks share the work: data x pipeline x context x tensor is the number of ranks.
struct ParallelSection {
#include "config/core/sections/parallel.def"
};

/// The factor that keeps float16 gradients from vanishing.
struct LossScaleSection {
#include "config/core/sections/loss_scale.def"
};

/// Numbers: what TrainingArguments have no name for.
struct PrecisionSection {
#include "config/core/sections/precision.def"
};

/// What TrainingArguments have no name for.
struct CheckpointSection {
#include "config/core/sections/checkpoint.def"
};

struct MonitorSection {
#include "config/core/sections/monitor.def"
};

#undef FIELD
#undef SECTION

/// The whole configuration, resolved once and passed by const reference in the narrowest struct.
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
