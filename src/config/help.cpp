// Generates the text of --help.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/command_line.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/print.h"

namespace lockstep::config {
namespace {

constexpr size_t kWidth = 100;
constexpr const char* kEverything = "all";
constexpr std::string_view kTraining = "training.";

const std::vector<KeyGroup>& training_groups() {
  static const std::vector<KeyGroup> kGroups = {
      {"Model",
       {"model.path",
        "model.preset",
        "tokenizer.path",
        "task.type",
        "lora.r",
        "lora.target_modules",
        "quantization.bits"}},
      {"Data",
       {"data.train",
        "data.validation",
        "data.dataset_name",
        "data.prompt",
        "data.sequence_length"}},
      {"Optimization",
       {"training.num_train_epochs",
        "training.max_steps",
        "training.per_device_train_batch_size",
        "training.gradient_accumulation_steps",
        "training.learning_rate",
        "training.lr_scheduler_type",
        "training.warmup_steps",
        "training.weight_decay",
        "training.optim",
        "training.seed"}},
      {"Precision and parallelism",
       {"training.bf16",
        "training.gradient_checkpointing",
        "parallel.tensor",
        "parallel.pipeline",
        "parallel.zero_stage"}},
      {"Output, evaluation and checkpoints",
       {"training.output_dir",
        "training.overwrite_output_dir",
        "training.resume_from_checkpoint",
        "training.logging_steps",
        "training.eval_strategy",
        "training.eval_steps",
        "training.save_steps",
        "training.save_total_limit",
        "training.load_best_model_at_end",
        "training.report_to"}},
  };
  return kGroups;
}

/// Wraps text. Continuation lines are indented to column `indent`.
std::string wrapped(const std::string& text, size_t indent) {
  std::string result;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t size = end - at;
    if (column > indent && column + 1 + size > kWidth) {
      result += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(at, size);
    column += size;
    at = end + 1;
  }
  return result;
}

std::string entry(const std::string& name, const std::string& text) {
  constexpr size_t kIndent = 38;
  std::string line = fmt::format("  {}", name);
  if (line.size() < kIndent - 1) {
    line.resize(kIndent, ' ');
  } else {
    line += fmt::format("\n{:{}}", "", kIndent);
  }
  return line + wrapped(text, kIndent) + "\n";
}

std::string default_text(const Key& key) {
  if (key.default_value.is_null()) {
    return "null";
  }
  return key.default_value.is_scalar() && key.default_value.text.empty()
             ? "empty"
             : to_text(key.default_value);
}

/// Returns the type of a key as shown by --help: "int", "list of strings", "one of a, b".
std::string type_name(const Key& key) {
  switch (key.type) {
    case Key::Type::kSection:
      return "map";
    case Key::Type::kBool:
      return "bool";
    case Key::Type::kInteger:
      return "int";
    case Key::Type::kNumber:
      return "float";
    case Key::Type::kText:
      return key.choices.empty() ? "string"
                                 : fmt::format("one of {}", fmt::join(key.choices, ", "));
    case Key::Type::kList:
      return "list of strings";
    case Key::Type::kMap:
      return "map of floats";
    case Key::Type::kRecords:
      return "list of maps";
  }
  return "";
}

/// Returns the entry of a key under the name `shown`, or the heading of a section.
std::string key_text(const Key& key, const std::string& shown) {
  if (key.type == Key::Type::kSection) {
    return fmt::format("\n{}: {}\n", key.name, key.help);
  }
  return entry(
      shown,
      fmt::format(
          "{}. {}{}; default: {}",
          key.help,
          type_name(key),
          key.optional ? " or null" : "",
          default_text(key)));
}

std::string flags_help(const ResolveOptions& options) {
  std::string text = "Flags\n";
  for (const Flag& flag : options.flags) {
    const char* value = flag.kind == Flag::Kind::kSwitch ? "" : " VALUE";
    const std::string meaning =
        flag.key.empty() ? flag.help : fmt::format("{} (the key {})", flag.help, flag.key);
    text += entry("--" + flag_name(flag.name) + value, meaning);
  }
  text +=
      entry("-c, --config FILE", "Configuration file, YAML or JSON; may contain a defaults list");
  return text;
}

std::string further_flags() {
  return entry("--config-path DIR", "Folder of the configuration tree; default: conf") +
         entry("--config-name NAME", "Main file of the configuration tree; default: config") +
         entry("--config-dir DIR", "Additional folder with configuration groups") +
         entry("--config_file FILE", "Accelerate configuration file. Other settings override it") +
         entry("--allow-unknown-config", "Ignore unknown keys with a warning");
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Key& key : all_keys()) {
    if (key.type == Key::Type::kSection && key.name.find('.') == std::string::npos) {
      names.push_back(key.name);
    }
  }
  return names;
}

std::string usage(const ResolveOptions& options) {
  const std::string general =
      fmt::format("lockstep {} [-c file.yaml] [key=value | --key value]...\n", options.command);
  return fmt::format(
      "{}\nKeys of training may be given without their section: learning_rate=1e-4, "
      "--learning_rate 1e-4.\n\n",
      options.usage.empty() ? general : options.usage);
}

std::string common_help(const ResolveOptions& options) {
  std::string text = usage(options) + flags_help(options);
  text += entry("-h, --help [SECTION | KEY | all]", "Show this help, or the keys of a section");
  for (const KeyGroup& group : options.common.empty() ? training_groups() : options.common) {
    text += fmt::format("\n{}\n", group.title);
    for (const std::string& name : group.keys) {
      text += key_text(
          *find_key(name), name.starts_with(kTraining) ? name.substr(kTraining.size()) : name);
    }
  }
  return text + "\n" +
         wrapped(
             fmt::format(
                 "Sections with more keys, for `lockstep {} --help SECTION`: {}. `--help all` "
                 "shows every key.",
                 options.command,
                 fmt::join(section_names(), ", ")),
             0) +
         "\n";
}

std::string complete_help(const ResolveOptions& options) {
  std::string text = usage(options) + flags_help(options) + further_flags();
  text += entry("-h, --help [SECTION | KEY | all]", "Show the most used keys, a section or a key");
  for (const Key& key : all_keys()) {
    text += key_text(key, key.name);
  }
  return text;
}

}  // namespace

std::string help(const ResolveOptions& options, const std::string& topic) {
  if (topic.empty()) {
    return common_help(options);
  }
  if (topic == kEverything) {
    return complete_help(options);
  }
  const Key* const found =
      find_key(topic) != nullptr ? find_key(topic) : find_key(std::string(kTraining) + topic);
  if (found == nullptr) {
    std::vector<std::string> names = section_names();
    names.emplace_back(kEverything);
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--help: unknown section '{}'.{}", topic, did_you_mean_key(topic, names)),
        fmt::format("give a key or one of {}", fmt::join(names, ", ")));
  }
  if (found->type != Key::Type::kSection) {
    return key_text(*found, found->name);
  }
  std::string text;
  for (const Key& key : all_keys()) {
    if (key.name == found->name || key.name.starts_with(found->name + ".")) {
      text += key_text(key, key.name);
    }
  }
  return text.substr(1);  // without the empty line above the heading
}

}  // namespace lockstep::config
