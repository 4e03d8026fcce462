// Splits the arguments of a command into a configuration file, overrides and flags.
#include "config/command_line.h"

#include <algorithm>

#include "base/format.h"
#include "config/compat/foreign.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/core/trainer_keys.h"
#include "config/hydra/layers.h"

namespace lockstep::config {
namespace {

bool is_config_file(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

/// Flags of other training programs. They are only recognized as flags because in a file, or as
/// key=value, the same names may be user variables.
struct ScriptFlag {
  std::string_view name, key;
};
constexpr ScriptFlag kScriptFlags[] = {
    {"batch_size", "training.per_device_train_batch_size"},
    {"ckpt_freq", "training.save_steps"},
    {"dataset_subset", "data.dataset_config_name"},
    {"epochs", "training.num_train_epochs"},
    {"log_freq", "training.logging_steps"},
    {"lr", "training.learning_rate"},
    {"model_name", "model.path"},
    {"num_epochs", "training.num_train_epochs"},
    {"seq_length", "data.sequence_length"},
};

/// Value type of a configuration flag.
struct Target {
  bool is_bool = false, is_list = false;
};

class CommandLineReader {
 public:
  CommandLineReader(
      const std::vector<std::string>& words, const ResolveOptions& options, Problems& problems)
      : words_(words),
        options_(options),
        problems_(problems) {}

  CommandLine read() {
    if (!words_.empty() && words_.front() == kCompleteFlag) {
      result_.help = true;
      return std::move(result_);
    }
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word.starts_with("--") && word.size() > 2) {
        flag(word);
      } else if (word.starts_with("-") && word.size() > 1) {
        short_flag(word);
      } else if (looks_like_override(word)) {
        take_override(word);
      } else if (is_config_file(word)) {
        set_file(word, word);
      } else if (const auto kind = other_kind(std::filesystem::path(word))) {
        problem(word, kind->first, kind->second);
      } else {
        problem(
            word,
            "unexpected argument",
            "write key=value, --key value, or -c file.yaml; `--help all` lists all keys");
      }
    }
    find_file();
    find_output();
    return std::move(result_);
  }

 private:
  void problem(const std::string& word, const std::string& what, const std::string& remedy = "") {
    problems_.add("", {}, fmt::format("command line: {}: {}", word, what), remedy);
  }

  void take_override(const std::string& word) {
    try {
      result_.overrides.push_back(parse_override(word));
    } catch (const Error& error) {
      problems_.add("", {}, "command line: " + error.message(), error.remedy());
    }
  }

  /// Returns the value of a flag: the text after '=' or, without '=', the next argument.
  std::optional<std::string> value_of(
      const std::string& word, const std::optional<std::string>& attached) {
    if (attached) {
      return attached;
    }
    if (at_ >= words_.size() || (words_[at_].starts_with("--") && words_[at_].size() > 2)) {
      problem(word, "a value is required");
      return std::nullopt;
    }
    return words_[at_++];
  }

  void short_flag(const std::string& word) {
    if (word == "-h") {
      help(std::nullopt);
    } else if (word == "-m") {
      multirun(word);
    } else if (word == "-c" || word == "-cn" || word == "-cp" || word == "-cd") {
      const char* names[] = {"config", "config-name", "config-path", "config-dir"};
      const size_t which = word == "-c" ? 0 : word == "-cn" ? 1 : word == "-cp" ? 2 : 3;
      own_flag(names[which], word, std::nullopt);
    } else {
      problem(word, "unknown flag", "`--help all` lists all flags and keys");
    }
  }

  void help(const std::optional<std::string>& attached) {
    result_.help = true;
    if (attached) {
      result_.help_topic = *attached;
    } else if (
        at_ < words_.size() && !words_[at_].starts_with("-") && !looks_like_override(words_[at_]) &&
        !is_config_file(words_[at_])) {
      result_.help_topic = words_[at_++];
    }
  }

  void multirun(const std::string& word) {
    problem(
        word,
        "sweeps over several values are not supported",
        "start the program once per value, in a shell loop");
  }

  /// Handles flags common to all commands. Returns false if `name` is not one of them.
  bool own_flag(
      const std::string& name,
      const std::string& word,
      const std::optional<std::string>& attached) {
    if (name == "help") {
      help(attached);
      return true;
    }
    if (name == "multirun") {
      multirun(word);
      return true;
    }
    if (name == "allow-unknown-config") {
      result_.allow_unknown = true;
      return true;
    }
    const std::vector<std::string> with_value = {
        "config", "config-name", "config-path", "config-dir", "config-file"};
    if (std::find(with_value.begin(), with_value.end(), name) == with_value.end()) {
      return false;
    }
    const auto value = value_of(word, attached);
    if (!value) {
      return true;
    }
    if (name == "config") {
      set_file(word, *value);
    } else if (name == "config-name") {
      config_name_ = *value;
    } else if (name == "config-path") {
      config_path_ = *value;
    } else if (name == "config-dir") {
      result_.folders.emplace_back(*value);
    } else {
      result_.accelerate_file = *value;
    }
    return true;
  }

  void set_file(const std::string& word, const std::string& file) {
    if (!result_.file.empty()) {
      problem(
          word,
          fmt::format("the configuration file is already {}", result_.file.string()),
          "give one file; its defaults list can include others");
    }
    result_.file = file;
  }

  void find_file() {
    if (!config_name_ && !config_path_) {
      return;
    }
    std::filesystem::path folder = config_path_.value_or("conf");
    if (!config_path_ && !std::filesystem::is_directory(folder)) {
      folder = ".";
    }
    std::string name = config_name_.value_or("config");
    if (!is_config_file(name)) {
      name += std::filesystem::exists(folder / (name + ".yml")) ? ".yml" : ".yaml";
    }
    set_file(config_name_ ? "--config-name" : "--config-path", (folder / name).string());
  }

  /// Sets training.output_dir to a folder named after the experiment in --save_dir. Programs with
  /// these flags do the same.
  void find_output() {
    if (!experiment_ && !save_dir_) {
      return;
    }
    Override made;
    made.key = "training.output_dir";
    made.is_flag = true;
    made.text = experiment_ ? "--experiment-name " + *experiment_ : "--save-dir " + *save_dir_;
    const std::filesystem::path all = save_dir_.value_or("../outputs");
    made.value = Value::scalar((experiment_ ? all / *experiment_ : all).string(), true);
    result_.overrides.push_back(std::move(made));
  }

  const Flag* command_flag(const std::string& name) const {
    for (const Flag& flag : options_.flags) {
      if (flag_name(flag.name) == name) {
        return &flag;
      }
    }
    return nullptr;
  }

  void flag(const std::string& word) {
    const size_t equal = word.find('=');
    const std::string spelled = word.substr(0, equal);
    const std::optional<std::string> attached =
        equal == std::string::npos ? std::nullopt : std::optional(word.substr(equal + 1));
    const std::string name = flag_name(spelled);
    if (const Flag* known = command_flag(name)) {
      take_command_flag(*known, name, word, attached);
      return;
    }
    if (own_flag(name, spelled, attached)) {
      return;
    }
    std::string key = spelled.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    if (key == "experiment_name" || key == "save_dir") {
      if (const auto value = value_of(spelled, attached)) {
        (key == "save_dir" ? save_dir_ : experiment_) = *value;
      }
      return;
    }
    const auto* const other = std::ranges::find(kScriptFlags, key, &ScriptFlag::name);
    key = other == std::end(kScriptFlags) ? key : other->key;
    if (const auto target = find_target(key)) {
      key_flag(key, *target, spelled, attached);
    } else if (const auto denied = denied_key(key)) {
      key_flag(*denied, {.is_bool = true}, spelled, std::string("false"));
    } else {
      unknown(key, spelled);
    }
  }

  void take_command_flag(
      const Flag& known,
      const std::string& name,
      const std::string& word,
      const std::optional<std::string>& attached) {
    if (known.kind == Flag::Kind::kKey) {
      key_flag(
          known.key,
          find_target(known.key).value_or(Target{}),
          word.substr(0, word.find('=')),
          attached);
    } else if (known.kind == Flag::Kind::kValue) {
      if (const auto value = value_of(word, attached)) {
        result_.flags[name].push_back(*value);
      }
    } else if (to_bool(attached.value_or("true")).value_or(false)) {
      result_.flags[name].emplace_back("true");
    } else if (!to_bool(attached.value_or("true"))) {
      problem(word, "the flag does not accept a value");
    }
  }

  static std::optional<Target> find_target(const std::string& key) {
    const Path path = canonical_path(split_path(key));
    if (const Key* known = find_key(join(path))) {
      return Target{known->type == Key::Type::kBool, known->type == Key::Type::kList};
    }
    if (path.size() == 2 && path[0] == "training") {
      if (const KeyRule* const rule = find_rule(trainer_rules(), path[1])) {
        return Target{rule->takes == KeyRule::Takes::kSwitch, rule->takes == KeyRule::Takes::kList};
      }
    }
    return std::nullopt;
  }

  /// Returns the bool key that a flag such as "no_bf16" or "training.no_bf16" sets to false.
  static std::optional<std::string> denied_key(const std::string& key) {
    const size_t dot = key.rfind('.');
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    if (key.compare(begin, 3, "no_") != 0) {
      return std::nullopt;
    }
    const std::string plain = key.substr(0, begin) + key.substr(begin + 3);
    const auto target = find_target(plain);
    return target && target->is_bool ? std::optional(plain) : std::nullopt;
  }

  void key_flag(
      const std::string& key,
      const Target& target,
      const std::string& spelled,
      const std::optional<std::string>& attached) {
    Override made;
    made.key = key;
    made.is_flag = true;
    if (target.is_bool && !attached) {
      const bool has_word = at_ < words_.size() && to_bool(words_[at_]);
      made.value = Value::scalar(has_word ? words_[at_] : "true");
      made.text = has_word ? spelled + " " + words_[at_++] : spelled;
    } else if (const auto first = value_of(spelled, attached)) {
      made.text = attached ? spelled + "=" + *first : spelled + " " + *first;
      made.value = target.is_list ? list(made, *first, attached.has_value()) : scalar(*first);
    } else {
      return;
    }
    result_.overrides.push_back(std::move(made));
  }

  /// Flag values are kept as strings, except null and maps.
  static Value scalar(const std::string& text) {
    return text == "null" || text == "None" ? Value::null() : Value::scalar(text, text.empty());
  }

  /// Reads a list, written as `--report_to a b c` or `[a,b,c]`.
  Value list(Override& made, const std::string& first, bool attached) {
    if (first.starts_with('[') && first.ends_with(']')) {
      try {
        return parse_override_value(first, made.text);
      } catch (const Error& error) {
        problem(made.text, error.message(), error.remedy());
        return Value::list();
      }
    }
    Value result = Value::list();
    result.items.push_back(Value::scalar(first, true));
    while (!attached && at_ < words_.size() && !words_[at_].starts_with("-") &&
           !looks_like_override(words_[at_])) {
      made.text += " " + words_[at_];
      result.items.push_back(Value::scalar(words_[at_++], true));
    }
    return result;
  }

  void unknown(const std::string& key, const std::string& spelled) {
    std::vector<std::string> names;
    for (const KeyRule& rule : trainer_rules()) {
      names.emplace_back(rule.name);
    }
    for (const Flag& flag : options_.flags) {
      std::string name = flag.name;
      std::replace(name.begin(), name.end(), '-', '_');
      names.push_back(name);
    }
    const auto nearest = nearest_key(key, names);
    problem(
        spelled,
        "unknown flag or key." +
            (nearest ? fmt::format(" Did you mean '--{}'?", *nearest) : std::string()),
        "`--help all` lists all flags and keys");
    // Skips the value of an unknown flag so that it is not reported as a second problem.
    if (spelled.find('=') == std::string::npos && at_ < words_.size() &&
        !words_[at_].starts_with("-") && !looks_like_override(words_[at_])) {
      ++at_;
    }
  }

  const std::vector<std::string>& words_;
  const ResolveOptions& options_;
  Problems& problems_;
  size_t at_ = 0;
  CommandLine result_;
  std::optional<std::string> config_name_, config_path_;
  std::optional<std::string> save_dir_, experiment_;  // from flags
};

}  // namespace

std::string flag_name(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

CommandLine read_command_line(
    const std::vector<std::string>& arguments, const ResolveOptions& options, Problems& problems) {
  return CommandLineReader(arguments, options, problems).read();
}

}  // namespace lockstep::config
