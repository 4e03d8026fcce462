// Recognizes and converts configuration files of other fine-tuning programs.
#include "config/compat/foreign.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/format.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/core/settings.h"
#include "config/core/trainer_keys.h"
#include "config/core/trl_keys.h"
#include "config/hydra/layers.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr std::string_view kOff = "off";

/// Returns the rule that covers a prefix of the name.
const KeyRule* wide_rule_of(KeyRules rules, const std::string& name) {
  for (const KeyRule& rule : rules) {
    if (rule.name.ends_with('*') && name.starts_with(rule.name.substr(0, rule.name.size() - 1))) {
      return &rule;
    }
  }
  return nullptr;
}

bool has_rules_below(KeyRules rules, const std::string& name) {
  return std::ranges::any_of(
      rules, [&](const KeyRule& rule) { return rule.name.starts_with(name + "."); });
}

bool is_nothing(const Value& value) {
  return value.is_null() ||
         (value.is_scalar() && !value.quoted && (value.text.empty() || is_null_word(value.text))) ||
         (value.is_list() && value.items.empty()) || (value.is_map() && value.entries.empty());
}

/// Conversion of one file.
class Conversion {
 public:
  Conversion(
      const ForeignProgram& program,
      const std::set<std::string>& given,
      bool allow_unknown,
      Problems& problems,
      std::vector<std::string>& warnings)
      : program_(program),
        given_(given),
        allow_unknown_(allow_unknown),
        problems_(problems),
        target_{settings_, problems, warnings, ""} {}

  Value run(const Value& file) {
    settings_ = Value::map(file.origin);
    read(file, "");
    if (program_.finish != nullptr) {
      Value rest = file;
      std::erase_if(
          rest.entries, [&](const Entry& entry) { return !replaced_by(entry.name).empty(); });
      program_.finish(rest, target_);
    }
    for (const auto& [key, value] : program_.defaults(settings_)) {
      if (settings_.find(split_path(key)) == nullptr) {
        set_key(
            settings_,
            std::string(key),
            std::string(value),
            {.source = Origin::Source::kDerived,
             .place = fmt::format("{}'s default", program_.name),
             .order = file.origin.order});
        defaults_.push_back(fmt::format("{}={}", key, value));
      }
    }
    for (const auto& [reason, keys] : refused_) {
      problems_.add(fmt::format("{}", fmt::join(keys.names, ", ")), keys.origin, reason);
    }
    return std::move(settings_);
  }

  /// Returns "31 keys translated, 2 ignored (a, b: reason); ...".
  std::string report() const {
    std::string text = fmt::format("{} keys translated", translated_);
    size_t ignored = 0;
    std::string list;
    for (const auto& [reason, keys] : ignored_) {
      ignored += keys.names.size();
      list +=
          fmt::format("{}{}: {}", list.empty() ? "" : "; ", fmt::join(keys.names, ", "), reason);
    }
    text += ignored == 0 ? "" : fmt::format(", {} ignored ({})", ignored, list);
    text += defaults_.empty()
                ? ""
                : fmt::format("; {}'s defaults: {}", program_.name, fmt::join(defaults_, " "));
    return text + (program_.differs.empty() ? "" : fmt::format("; {}", program_.differs));
  }

 private:
  struct Keys {
    std::vector<std::string> names;
    Origin origin;
  };
  using KeysByReason = std::map<std::string, Keys>;

  static void add(
      KeysByReason& keys, std::string_view why, const std::string& name, const Value& value) {
    Keys& found = keys[std::string(why)];
    if (found.names.empty()) {
      found.origin = value.origin;
    }
    found.names.push_back(name);
  }

  void read(const Value& map, const std::string& prefix) {
    for (const Entry& entry : map.entries) {
      const std::string name = prefix + entry.name;
      const KeyRule* const rule = find_rule(program_.rules, name);
      if (is_nothing(entry.value)) {
        continue;  // asks for nothing
      }
      if (const std::string_view ours = replaced_by(name); !ours.empty()) {
        add(ignored_, fmt::format("{} is given", ours), name, entry.value);
      } else if (rule != nullptr) {
        take(*rule, name, entry.value);
      } else if (entry.value.is_map() && has_rules_below(program_.rules, name)) {
        read(entry.value, name + ".");
      } else if (const KeyRule* const wide = wide_rule_of(program_.rules, name)) {
        take(*wide, name, entry.value);
      } else {
        take_own(name, entry.value);
      }
    }
  }

  std::string_view replaced_by(const std::string& name) const {
    for (const auto& [theirs, ours] : program_.replaced) {
      const bool is_it = theirs == name || (theirs.ends_with('*') &&
                                            name.starts_with(theirs.substr(0, theirs.size() - 1)));
      if (is_it && given_.count(std::string(ours)) != 0) {
        return ours;
      }
    }
    return {};
  }

  void take(const KeyRule& rule, const std::string& name, const Value& value) {
    if (rule.kind == kRead) {
      ++translated_;
      apply_rule(rule, name, value, target_);
    } else if (rule.kind == kIgnored) {
      add(ignored_, rule.text, name, value);
    } else if (is_harmless(rule, value)) {
      add(ignored_, kOff, name, value);
    } else {
      add(refused_, rule.text, fmt::format("{}: {}", name, short_text(value)), value);
    }
  }

  /// Reads a name that is also Lockstep's.
  void take_own(const std::string& name, const Value& value) {
    const Path path = canonical_path({name});
    const KeyRule* const rule =
        path.size() == 2 && path[0] == "training" ? find_rule(trainer_rules(), path[1]) : nullptr;
    if (rule != nullptr && rule->kind == kIgnored) {
      add(ignored_,
          is_harmless(*rule, value) || rule->text.empty() ? kOff : rule->text,
          name,
          value);
    } else if (path != Path{name} || is_section(name)) {
      ++translated_;
      merge_at(settings_, path, value);
    } else {
      add(allow_unknown_ ? ignored_ : refused_,
          fmt::format("unknown key of {}", program_.name),
          name,
          value);
    }
  }

  const ForeignProgram& program_;
  const std::set<std::string>& given_;
  bool allow_unknown_;
  Problems& problems_;
  Value settings_;
  RuleTarget target_;
  int64_t translated_ = 0;
  KeysByReason ignored_, refused_;
  std::vector<std::string> defaults_;
};

bool has_any(const Value& file, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(
      names, [&](std::string_view name) { return file.find(name) != nullptr; });
}

bool has_component(const Value& file) {
  return std::ranges::any_of(
      file.entries, [](const Entry& entry) { return entry.value.find("_component_") != nullptr; });
}

}  // namespace

const ForeignProgram* find_program(const Value& file) {
  if (has_component(file)) {
    return &kTorchtune;
  }
  if (has_own_section(file)) {
    return nullptr;
  }
  if (has_any(file, {"base_model"})) {
    return &kAxolotl;
  }
  if (has_any(
          file,
          {"finetuning_type",
           "cutoff_len",
           "lora_rank",
           "lora_target",
           "model_class",
           "infer_backend",
           "export_dir"})) {
    return &kLlamaFactory;
  }
  return std::ranges::any_of(
             file.entries, [](const Entry& entry) { return is_trl_name(entry.name); })
             ? &kTrl
             : nullptr;
}

bool has_own_section(const Value& file) {
  return std::ranges::any_of(file.entries, [](const Entry& entry) {
    return is_section(entry.name) && entry.value.is_map();
  });
}

std::span<const ForeignProgram* const> foreign_programs() {
  static constexpr std::array kPrograms{&kTrl, &kAxolotl, &kLlamaFactory, &kTorchtune};
  return kPrograms;
}

Value foreign_settings(
    const ForeignProgram& program,
    const Value& file,
    const std::string& name,
    const std::set<std::string>& given,
    bool allow_unknown,
    Problems& problems,
    std::vector<std::string>& warnings) {
  Conversion conversion(program, given, allow_unknown, problems, warnings);
  // Settings that several keys make have the file as their origin.
  Value whole = file;
  const int64_t order = file.entries.empty() ? 0 : file.entries.front().value.origin.order;
  whole.origin = {.source = Origin::Source::kFile, .place = name, .order = order};
  Value settings = conversion.run(whole);
  warnings.push_back(
      fmt::format("{}: read as a file of {}: {}", name, program.name, conversion.report()));
  return settings;
}

std::string table_of(const ForeignProgram& program) {
  const auto alternatives = [](std::string_view values) {
    std::string text;
    for (const char each : values) {
      text += each == '|' ? std::string(" or ") : std::string(1, each);
    }
    return text;
  };
  std::string text = fmt::format("| {} | Lockstep |\n|---|---|\n", program.name);
  std::map<std::string, std::vector<std::string>> ignored, refused;
  const bool is_trl = &program == &kTrl;
  for (const TrlKey& key : is_trl ? trl_keys() : std::span<const TrlKey>()) {
    text += fmt::format("| `{}` | {} |\n", key.name, key.key);
  }
  for (const KeyRule& rule : is_trl ? trl_rules() : program.rules) {
    if (rule.kind == kRead) {
      text += fmt::format("| `{}` | {} |\n", rule.name, rule.text);
    } else {
      const std::string harmless = rule.harmless.empty() || rule.kind == kIgnored
                                       ? ""
                                       : fmt::format(" (unless {})", alternatives(rule.harmless));
      (rule.kind == kIgnored ? ignored : refused)[std::string(rule.text)].push_back(
          fmt::format("`{}`{}", rule.name, harmless));
    }
  }
  for (const auto& [reason, names] : ignored) {
    text += fmt::format("| {} | ignored: {} |\n", fmt::join(names, ", "), reason);
  }
  for (const auto& [reason, names] : refused) {
    text += fmt::format("| {} | refused: {} |\n", fmt::join(names, ", "), reason);
  }
  return text;
}

void read_words(
    std::span<const ForeignWord> words,
    const RuleTarget& target,
    const std::string& name,
    const Value& value) {
  const auto found = std::ranges::find(words, lower_case(value.text), &ForeignWord::word);
  if (!value.is_scalar() || found == words.end()) {
    std::vector<std::string> known;
    for (const ForeignWord& word : words) {
      if (word.refused.empty()) {
        known.emplace_back(word.word);
      }
    }
    target.refuse(name, value, fmt::format("not supported; supported: {}", fmt::join(known, ", ")));
    return;
  }
  if (!found->refused.empty()) {
    target.refuse(name, value, std::string(found->refused));
    return;
  }
  std::string_view rest = found->settings;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const size_t equals = word.find('=');
    target.set(std::string(word.substr(0, equals)), std::string(word.substr(equals + 1)), value);
  }
}

void read_nothing(
    const RuleTarget& /*target*/, const std::string& /*name*/, const Value& /*value*/) {}

void drop_adapter(const RuleTarget& target, std::string_view why) {
  if (target.settings.erase("lora")) {
    target.warnings.push_back(fmt::format("the adapter keys of the file have no effect: {}", why));
  }
}

std::string text_in(const Value& file, const Path& path) {
  const Value* found = file.find(path);
  return found != nullptr && found->is_scalar() && !is_nothing(*found) ? found->text : "";
}

std::vector<std::string> words_in(const Value& value) {
  std::vector<std::string> words;
  for (const Value& item : value.items) {
    words.push_back(item.text);
  }
  std::string_view rest = value.text;
  while (!rest.empty()) {
    std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    if (!word.empty()) {
      words.emplace_back(word);
    }
  }
  return words;
}

void set_list(
    const RuleTarget& target,
    const std::string& key,
    const std::vector<std::string>& words,
    const Value& from) {
  Value list = Value::list(from.origin);
  for (const std::string& word : words) {
    list.items.push_back(Value::scalar(word, true, from.origin));
  }
  target.copy(key, list);
}

bool names_data_file(const std::string& word) {
  static constexpr std::array kEndings{
      ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst"};
  std::error_code ignored;
  return std::ranges::any_of(kEndings, [&](const char* end) { return word.ends_with(end); }) ||
         word.find('*') != std::string::npos || word.starts_with('.') || word.starts_with('/') ||
         std::filesystem::is_regular_file(word, ignored);
}

}  // namespace lockstep::config
