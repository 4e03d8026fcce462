// Resolves a command line to a complete configuration.
#include "config/resolve.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/format.h"
#include "config/command_line.h"
#include "config/compat/accelerate.h"
#include "config/compat/deepspeed.h"
#include "config/compat/foreign.h"
#include "config/compat/fsdp.h"
#include "config/compat/named_datasets.h"
#include "config/compat/open_unlearning.h"
#include "config/core/bind.h"
#include "config/core/class_weights.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/core/settings.h"
#include "config/core/trainer_keys.h"
#include "config/core/unsupported_keys.h"
#include "config/core/yaml.h"
#include "config/hydra/compose.h"
#include "config/hydra/interpolate.h"
#include "config/hydra/layers.h"
#include "config/validate.h"

namespace lockstep::config {
namespace {

class Resolver {
 public:
  explicit Resolver(const ResolveOptions& options)
      : options_(options),
        environment_(options.environment ? options.environment : process_environment) {}

  Resolution run(const std::vector<std::string>& arguments) {
    line_ = read_command_line(arguments, options_, problems_);
    result_.flags = line_.flags;
    result_.help = line_.help;
    result_.help_topic = line_.help_topic;
    if (line_.help || result_.has("json-schema")) {
      return std::move(result_);
    }
    layers();
    // Continues after a problem so that independent problems are reported together.
    interpolate();
    ranks_ = find_ranks();
    read_other_formats();
    apply_trainer_rules(tree_, problems_, result_.warnings);
    list_class_weights(tree_);
    if (options_.purpose == Purpose::kRun) {
      fill(tree_, dataset_settings(tree_, environment_, problems_), problems_);
    }
    drop_unknown();
    bind_config(tree_, result_.config, result_.origins, problems_);
    settle(result_.config, result_.origins, problems_);
    if (options_.purpose == Purpose::kRun) {
      check_supported(result_.config, result_.origins, problems_);
    }
    validate(result_.config, result_.origins, ranks_, problems_, result_.warnings);
    check_required();
    problems_.throw_if_any();
    warn_of_idle_keys(result_.config, result_.origins, result_.warnings);
    return std::move(result_);
  }

 private:
  void layers() {
    tree_ = to_value(Config{});
    try {
      merge(tree_, accelerate_settings(environment_, problems_, result_.warnings));
      if (!line_.accelerate_file.empty()) {
        const Value file = read_config_file(line_.accelerate_file);
        warn_of_processes(file);
        merge(tree_, accelerate_settings(file, problems_, result_.warnings));
      }
      refuse_other_kind(other_kind(line_.file));
      Composition composition =
          compose({.file = line_.file, .folders = line_.folders}, std::move(line_.overrides));
      if (is_open_unlearning(composition.tree)) {
        composition.overrides =
            take_overrides(composition.tree, std::move(composition.overrides), problems_);
        problems_.throw_if_any();
        composition.tree = open_unlearning_settings(
            resolved(composition), composition.overrides, problems_, result_.warnings);
      } else if (!is_accelerate(composition.tree)) {
        refuse_other_kind(other_kind(composition.tree));
        if (const ForeignProgram* program = find_program(composition.tree)) {
          convert(*program, composition);
        }
      }
      rename_older_names(composition.tree, problems_);
      if (is_accelerate(composition.tree)) {
        warn_of_processes(composition.tree);
        composition.tree = accelerate_settings(composition.tree, problems_, result_.warnings);
      }
      merge(tree_, std::move(composition.tree));
      choices_ = std::move(composition.choices);
      line_.overrides = std::move(composition.overrides);
      result_.warnings.insert(
          result_.warnings.end(), composition.warnings.begin(), composition.warnings.end());
    } catch (const Error& error) {
      // If files are missing, the rest of the configuration cannot be checked.
      problems_.add(error);
      problems_.throw_if_any();
    }
    referenced_ = referenced_names(tree_);  // an override may replace the only reference
    int64_t order = kCommandLineOrder;
    for (const Override& override : line_.overrides) {
      apply_override(tree_, override, ++order, problems_);
    }
    lift_short_names(tree_, problems_);
  }

  /// Throws if the configuration file is something else.
  void refuse_other_kind(const std::optional<std::pair<std::string, std::string>>& kind) {
    if (kind) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{} is {}", line_.file.string(), kind->first),
          kind->second);
    }
  }

  /// Converts a file of another fine-tuning program, with the overrides of its keys.
  void convert(const ForeignProgram& program, Composition& composition) {
    composition.overrides =
        take_overrides(composition.tree, std::move(composition.overrides), problems_);
    problems_.throw_if_any();
    std::set<std::string> given;
    for (const Override& override : composition.overrides) {
      given.insert(join(canonical_path(split_path(override.key))));
    }
    composition.tree = foreign_settings(
        program,
        resolved(composition),
        line_.file.string(),
        given,
        line_.allow_unknown,
        problems_,
        result_.warnings);
  }

  /// Returns a tree of another program's keys with all interpolations resolved.
  Value resolved(const Composition& composition) {
    choices_ = composition.choices;
    Interpolator interpolator(composition.tree, environment_, facts());
    Value tree = Value::map();
    for (const Entry& entry : composition.tree.entries) {
      if (entry.name != "hydra") {
        tree.entries.push_back({entry.name, interpolator.resolve(entry.value, {entry.name})});
      }
    }
    return tree;
  }

  RunFacts facts() const {
    RunFacts facts;
    std::error_code ignored;
    facts.hydra["runtime.cwd"] = std::filesystem::current_path(ignored).string();
    facts.hydra["job.name"] = options_.command;
    facts.hydra["job.config_name"] = line_.file.stem().string();
    for (const auto& [group, option] : choices_) {
      facts.hydra["runtime.choices." + group] = option;
    }
    // Workers use the launcher's start time so that time-dependent names are the same on all ranks.
    const auto started = environment_("LOCKSTEP_STARTED");
    facts.now =
        started ? to_integer(*started).value_or(0) : static_cast<int64_t>(std::time(nullptr));
    return facts;
  }

  /// Resolves all interpolations in the sections in place.
  void interpolate() {
    const Value source = tree_;
    Interpolator interpolator(source, environment_, facts());
    for (Entry& entry : tree_.entries) {
      if (is_section(entry.name)) {
        interpolate(entry.value, {entry.name}, interpolator);
      }
    }
    referenced_.insert(interpolator.referenced().begin(), interpolator.referenced().end());
    referenced_.merge(referenced_names(source));
    expand_texts(tree_, "");
  }

  /// Removes a value from `training` and returns it, or null if it is not set.
  Value take(const char* name) {
    Value* training = tree_.find("training");
    const Value* found = training == nullptr ? nullptr : training->find(name);
    Value value = found == nullptr ? Value::null() : *found;
    if (found != nullptr) {
      training->erase(name);
    }
    return value;
  }

  /// Reads the values in `training` that are configurations of other programs.
  void read_other_formats() {
    auto& warnings = result_.warnings;
    const Value fsdp = take("fsdp"), fsdp_config = take("fsdp_config");
    fill(tree_, fsdp_settings(fsdp, fsdp_config, problems_, warnings), problems_);
    const Value parallelism = take("parallelism_config");
    fill(tree_, parallelism_settings(parallelism, problems_, warnings), problems_);
    check_accelerator_config(take("accelerator_config"), problems_, warnings);
    const Value file = read_deepspeed(take("deepspeed"), problems_);
    const DeepspeedContext context{tree_, ranks_, line_.allow_unknown, problems_, warnings};
    fill(tree_, deepspeed_settings(file, context), problems_);
  }

  void interpolate(Value& value, const Path& path, Interpolator& interpolator) {
    if (value.is_map()) {
      for (Entry& entry : value.entries) {
        Path inner = path;
        inner.push_back(entry.name);
        interpolate(entry.value, inner, interpolator);
      }
      return;
    }
    if (value.is_scalar() && !value.quoted && value.text == "???") {
      problems_.add(join(path), value.origin, "a value is required", join(path) + "=...");
      value = Value::null();
      return;
    }
    try {
      value = interpolator.resolve(value, path);
    } catch (const Error& error) {
      problems_.add(join(path), {}, error.message(), error.remedy());
      value = Value::null();
    }
  }

  /// Parses maps and lists of maps that are given as strings, for example by a flag:
  /// --lr_scheduler_kwargs '{"num_cycles": 2}'.
  void expand_texts(Value& tree, const std::string& prefix) {
    for (Entry& entry : tree.entries) {
      const std::string key = prefix + entry.name;
      const Key* known = find_key(key);
      if (known == nullptr ||
          (known->type != Key::Type::kSection && known->type != Key::Type::kMap &&
           known->type != Key::Type::kRecords)) {
        continue;
      }
      Value& value = entry.value;
      if (value.is_map()) {
        expand_texts(value, key + ".");
      } else if (
          value.is_scalar() &&
          value.text.starts_with(known->type == Key::Type::kRecords ? '[' : '{')) {
        const Origin origin = value.origin;
        try {
          value = value.text.find('"') == std::string::npos
                      ? parse_override_value(value.text, key)
                      : parse_json_with_comments(value.text, key);
        } catch (const Error& error) {
          problems_.add(key, origin, error.message(), error.remedy());
          value = Value::null();
        }
        set_origin(value, origin);
      }
    }
  }

  /// Reports top-level names that are neither sections nor variables.
  void drop_unknown() {
    for (const Entry& entry : tree_.entries) {
      if (is_section(entry.name) || referenced_.count(entry.name) != 0) {
        continue;
      }
      const std::string place = describe(entry.value.origin);
      if (entry.name == "hydra") {
        if (entry.value.entries.size() > (entry.value.find("searchpath") == nullptr ? 0U : 1U)) {
          result_.warnings.push_back(fmt::format(
              "hydra ({}) has no effect: all output is written to training.output_dir", place));
        }
      } else if (line_.allow_unknown) {
        result_.warnings.push_back(fmt::format(
            "{} ({}) has no effect: {}", entry.name, place, why_unknown(entry.name).first));
      } else {
        const auto [what, remedy] = why_unknown(entry.name);
        problems_.add(entry.name, entry.value.origin, what, remedy);
      }
    }
    if (line_.allow_unknown) {
      drop_unknown_below(tree_, "");
    }
  }

  /// Returns the message and the hint for an unknown top-level name.
  std::pair<std::string, std::string> why_unknown(const std::string& name) const {
    if (name == "zero_optimization" || name.starts_with("train_micro_batch_size")) {
      return {"is a DeepSpeed key", "pass DeepSpeed's file with --deepspeed FILE"};
    }
    std::vector<std::string> sections;
    for (const Key& key : all_keys()) {
      if (key.type == Key::Type::kSection) {
        sections.push_back(key.name);
      }
    }
    return {
        "unknown key." + did_you_mean_key(name, sections),
        fmt::format(
            "{}--allow-unknown-config ignores unknown keys",
            referenced_.empty() ? "" : "variables must be referenced by a ${...}; ")};
  }

  void drop_unknown_below(Value& tree, const std::string& prefix) {
    std::erase_if(tree.entries, [&](Entry& entry) {
      const std::string key = prefix + entry.name;
      const Key* known = find_key(key);
      if (known != nullptr && known->type == Key::Type::kSection) {
        drop_unknown_below(entry.value, key + ".");
      }
      if (known == nullptr && !prefix.empty()) {
        result_.warnings.push_back(
            fmt::format("{} ({}) has no effect: unknown key", key, describe(entry.value.origin)));
        return true;
      }
      return false;
    });
  }

  /// Warns if the number of processes in an Accelerate file is ignored.
  void warn_of_processes(const Value& file) {
    const Value* const asked = file.find("num_processes");
    const int64_t count = asked == nullptr ? 1 : to_integer(asked->text).value_or(1);
    if (count > 1 && !find_ranks()) {
      result_.warnings.push_back(fmt::format(
          "num_processes: {} ({}) has no effect: start ranks with --nproc {}, or with `lockstep "
          "launch` and the same file",
          count,
          describe(asked->origin),
          count));
    }
  }

  /// Returns the number of ranks, if known.
  std::optional<int64_t> find_ranks() {
    if (options_.ranks) {
      return options_.ranks;
    }
    // The batch size is derived from the initial number of ranks, even after ranks were lost.
    const char* const name =
        environment_("LOCKSTEP_FIRST_WORLD_SIZE") ? "LOCKSTEP_FIRST_WORLD_SIZE" : "WORLD_SIZE";
    if (const auto size = environment_(name)) {
      const auto ranks = to_integer(*size);
      if (!ranks || *ranks < 1) {
        problems_.add(
            name,
            {.source = Origin::Source::kEnvironment, .place = name},
            fmt::format("'{}' is not a number of ranks", *size));
        return std::nullopt;
      }
      return ranks;
    }
    const auto nproc = line_.flags.find("nproc");
    return nproc == line_.flags.end() ? std::nullopt : to_integer(nproc->second.back());
  }

  void check_required() {
    if (result_.has("print-config")) {
      return;
    }
    const Value values = to_value(result_.config);
    for (const std::string& key : options_.required) {
      const bool has_other_data = result_.config.task.type == "unlearning" ||
                                  !result_.config.data.mixture.empty() ||
                                  !result_.config.data.dataset_name.empty();
      if (key == "data.train" && has_other_data) {
        continue;  // other keys set it, and report their own problems
      }
      const Value* value = values.find(split_path(key));
      const bool empty = value == nullptr || value->is_null() ||
                         (value->is_scalar() && value->text.empty()) ||
                         (value->is_list() && value->items.empty());
      if (empty) {
        problems_.add(key, {}, "is required", fmt::format("{}=...", key));
      }
    }
  }

  const ResolveOptions& options_;
  Environment environment_;
  CommandLine line_;
  Problems problems_;
  Resolution result_;
  Value tree_;
  std::map<std::string, std::string> choices_;
  std::set<std::string> referenced_;
  std::optional<int64_t> ranks_;
};

}  // namespace

std::optional<std::string> Resolution::value(const std::string& flag) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::nullopt : std::optional(found->second.back());
}

std::optional<int64_t> Resolution::integer(const std::string& flag, int64_t least) const {
  const auto text = value(flag);
  if (!text) {
    return std::nullopt;
  }
  const auto number = to_integer(*text);
  if (!number || *number < least) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--{} {}: must be an integer of at least {}", flag, *text, least));
  }
  return number;
}

Resolution resolve(const std::vector<std::string>& arguments, const ResolveOptions& options) {
  return Resolver(options).run(arguments);
}

}  // namespace lockstep::config
