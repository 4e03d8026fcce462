// Implements the part of `lockstep train` that needs no libtorch.
#include "start/train.h"

#include "base/format.h"
#include "base/log.h"
#include "config/print.h"
#include "start/completion.h"

namespace lockstep::start {

config::ResolveOptions train_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "train";
  options.required = {"training.output_dir", "data.train"};
  options.flags = {
      {"nproc",
       Kind::kValue,
       "Ranks to start on this machine. int; default: one per GPU, otherwise 1"},
      {"in-process", Kind::kSwitch, "Run the ranks as threads of one process"},
      {"cluster",
       Kind::kValue,
       "Cluster file of the machine for predictions of step time and memory. path"},
      {"force", Kind::kSwitch, "Start even if the prediction exceeds the memory"},
      {"dry-run", Kind::kSwitch, "Check everything without training"},
      {"log-memory", Kind::kKey, "The same as monitor.log_memory", "monitor.log_memory"},
      {"print-config", Kind::kSwitch, "Print the configuration with the origin of each value"},
      {"trace",
       Kind::kValue,
       "Write a timeline of a step on every rank to this file (Perfetto). path"},
      {"json-schema", Kind::kSwitch, "Print the JSON schema of a configuration file"},
      {"model", Kind::kKey, "The same as model.path", "model.path"},
      {"data", Kind::kKey, "The same as data.train", "data.train"},
  };
  return options;
}

config::ResolveOptions unlearn_options() {
  config::ResolveOptions options = train_options();
  options.command = "unlearn";
  options.common = {
      {"Model and method",
       {"model.path",
        "tokenizer.path",
        "unlearning.method",
        "unlearning.gamma",
        "unlearning.alpha",
        "unlearning.beta",
        "lora.r"}},
      {"Data",
       {"unlearning.forget",
        "unlearning.retain",
        "unlearning.question_key",
        "unlearning.answer_key",
        "unlearning.benchmark",
        "data.sequence_length"}},
      {"Training and output",
       {"training.num_train_epochs",
        "training.max_steps",
        "training.per_device_train_batch_size",
        "training.gradient_accumulation_steps",
        "training.learning_rate",
        "training.optim",
        "training.bf16",
        "training.gradient_checkpointing",
        "training.seed",
        "training.output_dir",
        "training.logging_steps",
        "training.eval_strategy",
        "training.save_steps"}},
  };
  return options;
}

namespace {

std::optional<int> begin(
    const std::vector<std::string>& arguments, const config::ResolveOptions& options) {
  const config::Resolution resolution = config::resolve(arguments, options);
  if (resolution.help) {
    return print_help(options, resolution, arguments);
  }
  if (resolution.has("json-schema")) {
    fmt::print("{}\n", config::json_schema());
    return 0;
  }
  if (resolution.has("print-config")) {
    warn(resolution.warnings);
    fmt::print("{}", config::print_config(resolution));
    return 0;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> begin_train(const std::vector<std::string>& arguments) {
  return begin(arguments, train_options());
}

std::optional<int> begin_unlearn(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = arguments;
  if (!asks_for_completion(arguments)) {
    all.emplace_back("task.type=unlearning");
  }
  return begin(all, unlearn_options());
}

void warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    log_warning("{}", warning);
  }
}

}  // namespace lockstep::start
