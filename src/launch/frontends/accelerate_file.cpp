// Reads accelerate's configuration file.
#include "launch/frontends/accelerate_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/core/yaml.h"
#include "launch/frontends/accelerate.h"

namespace lockstep::launch {
namespace {

// Top-level keys that are not options.
enum class TopKey { kIgnored, kSection, kSpecial };
const std::map<std::string, TopKey>& other_top_keys() {
  static const std::map<std::string, TopKey> keys{
      {"compute_environment", TopKey::kSpecial},
      {"distributed_type", TopKey::kSpecial},
      {"use_cpu", TopKey::kSpecial},
      {"fp16", TopKey::kSpecial},
      {"deepspeed_config", TopKey::kSection},
      {"fsdp_config", TopKey::kSection},
      {"megatron_lm_config", TopKey::kSection},
      {"parallelism_config", TopKey::kSection},
      {"fp8_config", TopKey::kSection},
      {"dynamo_config", TopKey::kSection},
      {"mpirun_config", TopKey::kSection},
      {"main_training_function", TopKey::kIgnored},
      {"downcast_bf16", TopKey::kIgnored},
      {"tpu_env", TopKey::kIgnored},
      {"tpu_name", TopKey::kIgnored},
      {"tpu_zone", TopKey::kIgnored},
      {"tpu_use_cluster", TopKey::kIgnored},
      {"tpu_use_sudo", TopKey::kIgnored},
      {"tpu_vm", TopKey::kIgnored},
      {"command_file", TopKey::kIgnored},
      {"commands", TopKey::kIgnored},
      {"ipex_config", TopKey::kIgnored}};
  return keys;
}

// Returns the option of a key in a section. The key may have the section's prefix or not.
std::string section_option(const std::string& section, const std::string& key) {
  static const std::map<std::string, std::string> prefixes{
      {"fsdp_config", "fsdp-"},
      {"megatron_lm_config", "megatron-lm-"},
      {"parallelism_config", "parallelism-config-"},
      {"fp8_config", "fp8-"},
      {"dynamo_config", "dynamo-"},
      {"mpirun_config", "mpirun-"},
      {"deepspeed_config", ""}};
  static const std::map<std::string, std::string> renamed{
      {"fp8-amax-history-length", "fp8-amax-history-len"},
      {"fp8-amax-compute-algorithm", "fp8-amax-compute-algo"},
      {"fsdp-transformer-cls-to-wrap", "fsdp-transformer-layer-cls-to-wrap"}};
  const std::string& prefix = prefixes.at(section);
  std::string name = dashed(key);
  if (!name.starts_with(prefix)) {
    name = prefix + name;
  }
  const auto found = renamed.find(name);
  return found == renamed.end() ? name : found->second;
}

// Sets the values of a configuration file as defaults of options.
class ConfigFile {
 public:
  explicit ConfigFile(Options& options) : options_(options) {
    for (const OptionSpec& option : accelerate_options()) {
      names_.emplace_back(option.name);
    }
  }

  void read(const std::string& path) {
    const config::Value file = config::read_config_file(path);
    for (const config::Entry& entry : file.entries) {
      const auto other = other_top_keys().find(entry.name);
      if (entry.value.is_null() ||
          (other != other_top_keys().end() && other->second == TopKey::kIgnored)) {
        continue;
      }
      if (other == other_top_keys().end()) {
        take(entry.name, dashed(entry.name), entry.value);
      } else if (other->second == TopKey::kSection) {
        if (entry.name == "parallelism_config" && !entry.value.entries.empty()) {
          options_.set_default("use-parallelism-config", "1");  // as accelerate does
        }
        for (const config::Entry& inner : entry.value.entries) {
          if (!inner.value.is_null()) {
            if (entry.name == "deepspeed_config") {
              fields_.push_back(inner.name);
            }
            take(
                entry.name + "." + inner.name, section_option(entry.name, inner.name), inner.value);
          }
        }
      } else {
        take_special(entry.name, entry.value.text);
      }
    }
  }

  const std::string& distributed_type() const { return type_; }
  /// Returns the keys of deepspeed_config, for ACCELERATE_CONFIG_DS_FIELDS.
  const std::vector<std::string>& deepspeed_fields() const { return fields_; }

 private:
  static std::string text_of(const config::Value& value) {
    std::vector<std::string> parts;
    for (const config::Value& item : value.items) {
      parts.push_back(item.text);
    }
    return value.is_list() ? fmt::format("{}", fmt::join(parts, ",")) : value.text;
  }

  void take(const std::string& shown, const std::string& name, const config::Value& value) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      options_.problem(fmt::format(
          "{}: unknown key '{}'.{}", value.origin.place, shown, did_you_mean(name, names_)));
      return;
    }
    std::string text = text_of(value);
    // Unquoted `mixed_precision: no` is false in YAML 1.1, and some tools write `false`.
    if (name == "mixed-precision" && !value.quoted && lower_case(text) == "false") {
      text = std::string("no");
    }
    const auto option = std::find_if(
        accelerate_options().begin(), accelerate_options().end(), [&](const OptionSpec& one) {
          return name == one.name;
        });
    if (option->kind == OptionKind::kFlag) {
      text.assign(1, is_truth_word(text) ? '1' : '0');
    }
    options_.set_default(name, text);
  }

  void take_special(const std::string& key, const std::string& text) {
    if (key == "compute_environment" && text != "LOCAL_MACHINE") {
      options_.problem(
          fmt::format("compute_environment {} is not supported; use LOCAL_MACHINE", text));
    } else if (key == "use_cpu" && is_truth_word(text)) {
      options_.set_default("cpu", "1");
    } else if (key == "fp16" && is_truth_word(text)) {
      options_.set_default("mixed-precision", "fp16");
    } else if (key == "distributed_type") {
      type_ = text;
      static const std::map<std::string, std::string> flags{
          {"NO", ""},
          {"MULTI_CPU", "cpu"},
          {"MULTI_GPU", "multi-gpu"},
          {"DEEPSPEED", "use-deepspeed"},
          {"FSDP", "use-fsdp"},
          {"MEGATRON_LM", "use-megatron-lm"}};
      const auto found = flags.find(text);
      if (found == flags.end()) {
        options_.problem(fmt::format(
            "distributed_type {} is not supported; use NO, MULTI_CPU, MULTI_GPU, DEEPSPEED, FSDP "
            "or MEGATRON_LM",
            text));
      } else if (!found->second.empty() && !chosen()) {
        options_.set_default(found->second, "1");
      }
    }
  }

  // Returns true if the command line selects the distributed type. The file's value is then
  // ignored.
  bool chosen() const {
    return std::any_of(
        kKinds.begin(), kKinds.end(), [&](const char* kind) { return options_.given(kind); });
  }

  static constexpr std::array kKinds{
      "cpu", "multi-gpu", "use-deepspeed", "use-fsdp", "use-megatron-lm"};
  Options& options_;
  std::vector<std::string> names_, fields_;
  std::string type_;
};

}  // namespace

bool is_truth_word(const std::string& text) {
  const std::string word = lower_case(text);
  return word == "true" || word == "yes" || word == "1" || word == "on" || word == "y";
}

AccelerateFile read_accelerate_file(const std::string& path, Options& options) {
  ConfigFile file(options);
  file.read(path);
  return {file.distributed_type(), file.deepspeed_fields()};
}

}  // namespace lockstep::launch
