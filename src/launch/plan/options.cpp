// Implements the table-driven command-line parser.
#include "launch/plan/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

// Returns the option with this long name, or null if none or several match.
const OptionSpec* find_long(
    std::span<const OptionSpec> table, const std::string& name, bool prefixes) {
  const OptionSpec* found = nullptr;
  for (const OptionSpec& option : table) {
    if (name == option.name) {
      return &option;
    }
  }
  for (const OptionSpec& option : table) {
    if (prefixes && std::string_view(option.name).starts_with(name)) {
      if (found != nullptr) {
        return nullptr;
      }
      found = &option;
    }
  }
  return found;
}

const OptionSpec* find_letter(std::span<const OptionSpec> table, char letter) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const OptionSpec& option) {
    return option.letter == letter;
  });
  return found == table.end() ? nullptr : &*found;
}

// Word of the command line that starts an option.
struct Word {
  std::string shown;  // as the user wrote it, without a value
  const OptionSpec* option = nullptr;
  std::optional<std::string> value;  // after '=' or directly after a letter
};

Word read_word(std::span<const OptionSpec> table, bool prefixes, const std::string& text) {
  Word word;
  if (text.starts_with("--")) {
    const size_t equals = text.find('=');
    word.shown = text.substr(0, equals);
    word.option = find_long(table, dashed(word.shown.substr(2)), prefixes);
    if (equals != std::string::npos) {
      word.value = text.substr(equals + 1);
    }
    return word;
  }
  word.shown = text.substr(0, 2);
  word.option = find_letter(table, text[1]);
  if (text.size() > 2) {
    word.value = text.substr(text[2] == '=' ? 3 : 2);
  }
  return word;
}

bool begins_option(const std::string& text) {
  return text.size() > 1 && text[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(text[1])) == 0;
}

std::string allowed(const OptionSpec& option) {
  return fmt::format("{}", fmt::join(split(option.choices, '|'), ", "));
}

std::string environment_name(const OptionRules& rules, const OptionSpec& option) {
  std::string name = rules.environment_prefix + option.name;
  for (char& letter : name) {
    letter =
        letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

std::string unknown_option(std::span<const OptionSpec> table, const std::string& shown) {
  std::vector<std::string> names;
  const std::string name = dashed(shown.substr(std::min<size_t>(2, shown.size())));
  std::vector<std::string> longer;
  for (const OptionSpec& option : table) {
    names.emplace_back(option.name);
    if (!name.empty() && names.back().starts_with(name)) {
      longer.push_back("--" + names.back());
    }
  }
  if (longer.size() > 1) {
    return fmt::format("{} is ambiguous: {}", shown, fmt::join(longer, ", "));
  }
  return fmt::format("unknown option {}.{}", shown, did_you_mean(name, names));
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const std::string& Options::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found != values_.end() ? found->second : fallbacks_.at(name);
}

int64_t Options::integer(const std::string& name, int64_t least) {
  const std::string& value = text(name);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least) {
    problem(fmt::format("--{} {}: must be an integer of at least {}", name, value, least));
    return least;
  }
  return number;
}

double Options::seconds(const std::string& name, double least) {
  const std::string& value = text(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number) ||
      number < least) {
    problem(fmt::format("--{} {}: must be a number of seconds of at least {}", name, value, least));
    return least;
  }
  return number;
}

void Options::finish(const OptionRules& rules) const {
  if (!problems_.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}", fmt::join(problems_, "\n")),
        fmt::format("{} --help lists the options", rules.program));
  }
}

Options parse_options(
    std::span<const OptionSpec> table,
    const OptionRules& rules,
    const std::vector<std::string>& arguments,
    const Environment& environment) {
  Options result;
  for (const OptionSpec& option : table) {
    result.fallbacks_[option.name] = option.fallback;
    if (rules.environment_prefix.empty()) {
      continue;
    }
    const auto found = environment.find(environment_name(rules, option));
    if (found != environment.end()) {
      const bool off = found->second.empty() || found->second == "0";
      result.values_[option.name] =
          option.kind == OptionKind::kFlag ? (off ? "0" : "1") : found->second;
    }
  }
  size_t at = 0;
  for (; at < arguments.size() && begins_option(arguments[at]); ++at) {
    if (arguments[at] == "--") {
      ++at;
      break;
    }
    Word word = read_word(table, rules.prefixes, arguments[at]);
    if (word.option == nullptr) {
      result.problem(unknown_option(table, word.shown));
      continue;
    }
    const OptionSpec& option = *word.option;
    result.given_.insert(option.name);
    if (option.kind == OptionKind::kFlag) {
      if (word.value) {
        result.problem(fmt::format("{} takes no value", word.shown));
      }
      word.value = std::string("1");
    } else if (!word.value) {
      if (at + 1 == arguments.size()) {
        result.problem(fmt::format("{} requires a value: {}", word.shown, option.help));
        continue;
      }
      word.value = arguments[++at];
    }
    result.values_[option.name] = *word.value;
  }
  for (const OptionSpec& option : table) {
    const auto found = result.values_.find(option.name);
    const std::vector<std::string> choices = split(option.choices, '|');
    if (found != result.values_.end() && !choices.empty() &&
        std::find(choices.begin(), choices.end(), found->second) == choices.end()) {
      result.problem(fmt::format(
          "--{} {}: must be one of {}.{}",
          option.name,
          found->second,
          allowed(option),
          did_you_mean(found->second, choices)));
    }
  }
  result.rest_.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return result;
}

Recognised recognise(
    std::span<const OptionSpec> table,
    std::span<const OptionSpec> all,
    bool prefixes,
    const std::vector<std::string>& arguments) {
  Recognised result;
  for (size_t at = 0; at < arguments.size() && begins_option(arguments[at]); ++at) {
    if (arguments[at] == "--") {
      break;
    }
    const Word word = read_word(table, prefixes, arguments[at]);
    const OptionSpec* option = word.option;
    if (option != nullptr) {
      ++result.known;
    } else {
      result.unknown.push_back(word.shown);
      option = read_word(all, /*prefixes=*/false, arguments[at]).option;
    }
    if (option != nullptr && option->kind == OptionKind::kValue && !word.value) {
      ++at;
    }
  }
  return result;
}

bool takes_next_word(std::span<const OptionSpec> table, const std::string& word) {
  const Word read = read_word(table, /*prefixes=*/false, word);
  return begins_option(word) && read.option != nullptr && read.option->kind == OptionKind::kValue &&
         !read.value;
}

std::string help_text(std::span<const OptionSpec> table) {
  std::string text;
  for (const OptionSpec& option : table) {
    std::string left = option.letter != 0 ? fmt::format("-{}, --{}", option.letter, option.name)
                                          : fmt::format("    --{}", option.name);
    if (option.kind == OptionKind::kValue) {
      left += " VALUE";
    }
    text += fmt::format("  {:<42} {}", left, option.help);
    if (*option.choices != '\0') {
      text += fmt::format(" ({})", allowed(option));
    } else if (option.kind == OptionKind::kValue && *option.fallback != '\0') {
      text += fmt::format(" [{}]", option.fallback);
    }
    text += '\n';
  }
  return text;
}

std::string completion_script(
    std::span<const OptionSpec> table, const std::string& program, const std::string& shell) {
  std::vector<std::string> names;
  for (const OptionSpec& option : table) {
    names.push_back(fmt::format("--{}", option.name));
  }
  const std::string words = fmt::format("{}", fmt::join(names, " "));
  if (shell == "tcsh") {
    return fmt::format("complete {} 'c/--/({})/' 'n/*/f/'\n", program, words);
  }
  const std::string body = fmt::format(
      "_{0}_complete() {{\n"
      "  if [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"{1}\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o default -F _{0}_complete {0}\n",
      program,
      words);
  return shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + body : body;
}

}  // namespace lockstep::launch
