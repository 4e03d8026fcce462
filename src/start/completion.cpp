// Finds candidates for shell completion in the tables of the commands.
#include "start/completion.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "config/command_line.h"
#include "config/core/schema.h"
#include "config/print.h"
#include "model/model_config.h"
#include "start/parse.h"

namespace lockstep::start {
namespace {

using Kind = Completable::Kind;

/// Candidates that begin with the word at the cursor, one per line.
class Candidates {
 public:
  explicit Candidates(std::string word) : word_(std::move(word)) {}

  const std::string& word() const { return word_; }

  void add(const std::string& candidate, const std::string& help) {
    if (candidate.starts_with(word_) && seen_.insert(candidate).second) {
      text_ += fmt::format("{}\t{}\n", candidate, help.substr(0, help.find(". ")));
    }
  }

  void add_values(const Completable& option, const std::string& before = "") {
    for (const std::string& value : option.values) {
      add(before + value, "");
    }
  }

  /// Offers the name up to the next dot after the typed word, so that keys are listed by section.
  void add_by_section(const std::string& name, const std::string& help) {
    const size_t dot = name.starts_with(word_) ? name.find('.', word_.size()) : std::string::npos;
    add(name.substr(0, dot == std::string::npos ? dot : dot + 1),
        dot == std::string::npos ? help : "");
  }

  const std::string& text() const { return text_; }

 private:
  std::string word_, text_;
  std::set<std::string> seen_;
};

/// Returns the option that accepts a value in `word`: "--model", "model.path" or "--model.path".
const Completable* find_valued(const std::vector<Completable>& options, std::string word) {
  const auto is_named = [&](Kind kind) {
    return [kind, &word](const Completable& option) {
      return option.kind == kind && option.name == word;
    };
  };
  auto found = std::ranges::find_if(options, is_named(Kind::kValue));
  if (found == options.end()) {
    if (word.starts_with("--")) {
      word.erase(0, 2);
      std::ranges::replace(word, '-', '_');
    }
    found = std::ranges::find_if(options, is_named(Kind::kKey));
  }
  return found == options.end() ? nullptr : &*found;
}

std::vector<std::string> values_of(const config::Key& key) {
  if (key.name == "model.preset") {
    return model::preset_names();
  }
  if (key.type == config::Key::Type::kBool) {
    return {"true", "false"};
  }
  return key.choices;
}

std::vector<Completable> completables(const config::ResolveOptions& options) {
  std::vector<Completable> all;
  for (const config::Flag& flag : options.flags) {
    const config::Key* const key = config::find_key(flag.key);
    all.push_back(
        {.name = "--" + config::flag_name(flag.name),
         .kind = flag.kind == config::Flag::Kind::kSwitch ? Kind::kSwitch : Kind::kValue,
         .help = flag.help,
         .values = key == nullptr ? std::vector<std::string>{} : values_of(*key)});
  }
  Completable help{.name = "--help", .kind = Kind::kValue, .help = "Show the help"};
  for (const config::Key& key : config::all_keys()) {
    if (key.type == config::Key::Type::kSection) {
      if (config::is_section(key.name)) {
        help.values.push_back(key.name);
      }
      continue;
    }
    constexpr std::string_view kTraining = "training.";
    if (key.name.starts_with(kTraining)) {
      all.push_back({key.name.substr(kTraining.size()), Kind::kKey, key.help, values_of(key)});
    }
    all.push_back({key.name, Kind::kKey, key.help, values_of(key)});
  }
  help.values.emplace_back("all");
  all.push_back(std::move(help));
  all.push_back({"--config", Kind::kValue, "Configuration file"});
  all.push_back({"-c", Kind::kValue, "Configuration file"});
  return all;
}

/// Returns the values of a CLI11 option that has a set of them: the set is in the name of its type,
/// "TEXT:{nf4,fp4}".
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  return begin == std::string::npos || end == std::string::npos
             ? std::vector<std::string>{}
             : launch::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::vector<Completable> completables(const CLI::App& app) {
  std::vector<Completable> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() && !option->get_positional()) {
      continue;  // an internal option
    }
    const Kind kind = option->get_items_expected_max() > 0 ? Kind::kValue : Kind::kSwitch;
    if (option->get_positional()) {
      all.push_back({"", Kind::kPositional, option->get_description(), values_of(*option)});
    }
    for (const std::string& name : option->get_lnames()) {
      all.push_back({"--" + name, kind, option->get_description(), values_of(*option)});
    }
  }
  return all;
}

std::vector<std::string> after_first(const std::vector<std::string>& words) {
  return {words.begin() + (words.empty() ? 0 : 1), words.end()};
}

}  // namespace

bool asks_for_completion(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == config::kCompleteFlag;
}

std::string complete(
    const std::vector<Completable>& options, const std::vector<std::string>& words) {
  Candidates found(words.empty() ? "" : words.back());
  const std::string& word = found.word();
  const std::string before = words.size() < 2 ? "" : words[words.size() - 2];
  const Completable* const valued =
      before.starts_with("-") ? find_valued(options, before) : nullptr;
  if (valued != nullptr && !word.starts_with("-")) {
    found.add_values(*valued);
    return found.text();
  }
  if (const size_t equal = word.find('='); equal != std::string::npos) {
    if (const Completable* const key = find_valued(options, word.substr(0, equal))) {
      found.add_values(*key, word.substr(0, equal + 1));
    }
    return found.text();
  }
  for (const Completable& option : options) {
    if (option.kind == Kind::kPositional) {
      found.add_values(option);
    } else if (option.kind != Kind::kKey) {
      if (word.starts_with("-")) {
        found.add(option.name, option.help);
      }
    } else {
      found.add_by_section(
          word.starts_with("-") ? "--" + option.name : option.name + "=", option.help);
    }
  }
  return found.text();
}

std::string complete(CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> words = after_first(arguments);
  std::vector<Completable> names;
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (words.size() > 1 && words.front() == command->get_name()) {
      return complete(*command, words);
    }
    names.push_back({"", Kind::kPositional, command->get_description(), {command->get_name()}});
  }
  return complete(names.empty() ? completables(app) : names, words);
}

std::string complete(
    std::span<const launch::OptionSpec> table, const std::vector<std::string>& arguments) {
  std::vector<Completable> all;
  for (const launch::OptionSpec& option : table) {
    all.push_back(
        {fmt::format("--{}", option.name),
         option.kind == launch::OptionKind::kFlag ? Kind::kSwitch : Kind::kValue,
         option.help,
         *option.choices == '\0' ? std::vector<std::string>{}
                                 : launch::split(option.choices, '|')});
  }
  return complete(all, after_first(arguments));
}

int print_help(
    const config::ResolveOptions& options,
    const config::Resolution& resolution,
    const std::vector<std::string>& arguments) {
  fmt::print(
      "{}",
      asks_for_completion(arguments) ? complete(completables(options), after_first(arguments))
                                     : config::help(options, resolution.help_topic));
  return 0;
}

namespace {

constexpr const char* kBash =
    R"script(# bash completion of lockstep: source <(lockstep completion bash)
_lockstep() {
  local line="${COMP_LINE:0:COMP_POINT}" prefix="" word
  local -a words command
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  if (( ${#words[@]} > 2 )); then
    command=("${words[0]}" "${words[1]}" --complete "${words[@]:2}")
  else
    command=("${words[0]}" --complete "${words[1]}")
  fi
  # bash replaces only what follows '=', which separates words.
  word="${words[${#words[@]} - 1]}"
  [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && prefix="${word%=*}="
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    COMPREPLY+=("${word#"$prefix"}")
    [[ $word == *[=.] ]] && compopt -o nospace 2> /dev/null
  done < <("${command[@]}" 2> /dev/null)
}
complete -o default -F _lockstep lockstep
)script";

constexpr const char* kZsh = R"script(#compdef lockstep
# zsh completion of lockstep: source <(lockstep completion zsh), or save it as _lockstep in $fpath
_lockstep() {
  local -a lines open closed
  local line word
  if (( CURRENT > 2 )); then
    lines=("${(@f)$("${words[1]}" "${words[2]}" --complete "${(@)words[3,CURRENT]}" 2> /dev/null)}")
  else
    lines=("${(@f)$("${words[1]}" --complete "${words[2]}" 2> /dev/null)}")
  fi
  for line in $lines; do
    [[ -n $line ]] || continue
    word="${line%%$'\t'*}"
    if [[ $word == *[=.] ]]; then
      open+=("${word//:/\\:}:${line#*$'\t'}")
    else
      closed+=("${word//:/\\:}:${line#*$'\t'}")
    fi
  done
  if (( ${#open} + ${#closed} == 0 )); then
    compset -P '*='
    _files
    return
  fi
  (( ${#closed} )) && _describe lockstep closed
  (( ${#open} )) && _describe lockstep open -S ''
}
if [[ ${funcstack[1]} == _lockstep ]]; then
  _lockstep "$@"
else
  compdef _lockstep lockstep
fi
)script";

constexpr const char* kFish =
    R"script(# fish completion of lockstep: lockstep completion fish | source
function __lockstep_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found
    if test (count $words) -gt 1
        set found ($words[1] $words[2] --complete $words[3..-1] "$word" 2> /dev/null)
    else
        set found ($words[1] --complete "$word" 2> /dev/null)
    end
    if test (count $found) -gt 0
        printf '%s\n' $found
    else if string match -q '*=*' -- $word
        set -l parts (string split -m 1 = -- $word)
        for path in (__fish_complete_path $parts[2])
            printf '%s=%s\n' $parts[1] $path
        end
    else
        __fish_complete_path $word
    end
end
complete -c lockstep -f -a '(__lockstep_candidates)'
)script";

}  // namespace

int run_completion(std::vector<std::string> arguments) {
  std::string shell;
  CLI::App app(
      "Print the completion script of a shell, which completes commands, options, keys and their "
      "values. bash: source <(lockstep completion bash). zsh: source <(lockstep completion zsh). "
      "fish: lockstep completion fish | source.",
      "lockstep completion");
  app.add_option("shell", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  fmt::print("{}", shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  return 0;
}

}  // namespace lockstep::start
