// Finds the program that workers run.
#include "launch/plan/program.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "launch/plan/options.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnCommands{
    "train",
    "eval",
    "generate",
    "tokenize",
    "tokenizer",
    "verify",
    "estimate",
    "plan",
    "schedule",
    "calibrate",
    "doctor",
    "bench",
    "export",
    "unlearn",
    "predict",
    "replay",
    "selftest"};

bool is_own_command(const std::string& word) {
  std::error_code ignored;
  return std::find(kOwnCommands.begin(), kOwnCommands.end(), word) != kOwnCommands.end() &&
         !fs::exists(word, ignored);
}

// Returns true if the file is a compiled program that needs no interpreter.
bool is_compiled(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  return file && magic == std::array<char, 4>{'\x7f', 'E', 'L', 'F'};
}

std::string python(const Environment& environment) {
  const auto chosen = environment.find("PYTHON_EXEC");
  if (chosen != environment.end() && !chosen->second.empty()) {
    return chosen->second;
  }
  for (const char* name : {"python", "python3"}) {
    if (!find_in_path(name, environment).empty()) {
      return name;
    }
  }
  return "python";
}

}  // namespace

std::vector<std::string> own_words_for(const std::vector<std::string>& words) {
  const fs::path script = words.empty() ? "" : words[0];
  const bool evaluates = script.filename() == "eval.py";
  if ((!evaluates && script.filename() != "train.py") || script.parent_path().filename() != "src") {
    return {};
  }
  const fs::path configs = (script.parent_path() / "../configs").lexically_normal();
  std::string name = evaluates ? "eval.yaml" : "train.yaml";
  std::vector<std::string> rest;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if ((word == "--config-name" || word == "-cn") && i + 1 < words.size()) {
      name = words[++i];
    } else if (word.starts_with("--config-name=")) {
      name = word.substr(word.find('=') + 1);
    } else {
      rest.push_back(word);
    }
  }
  const fs::path file = configs / (name.ends_with(".yaml") ? name : name + ".yaml");
  std::error_code ignored;
  if (!fs::exists(file, ignored) || !fs::is_directory(configs / "experiment", ignored)) {
    return {};
  }
  const char* command = evaluates ? "eval" : name.starts_with("unlearn") ? "unlearn" : "train";
  std::vector<std::string> own{command, "-cp", configs.string(), "-cn", name};
  own.insert(own.end(), rest.begin(), rest.end());
  return own;
}

std::string own_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

std::string find_in_path(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    return ::access(name.c_str(), X_OK) == 0 ? name : "";
  }
  const auto path = environment.find("PATH");
  for (const std::string& folder : split(path == environment.end() ? "" : path->second, ':')) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return "";
}

Program worker_program(
    const std::vector<std::string>& words,
    const ProgramRules& rules,
    const Environment& environment) {
  Program program;
  if (words.empty() || (!rules.module && !rules.no_python && is_own_command(words[0]))) {
    program.ours = true;
    program.name = "lockstep " + (words.empty() ? std::string("train") : words[0]);
    program.argv = {own_path(), words.empty() ? "train" : words[0]};
  } else {
    program.name = fs::path(words[0]).filename().string();
    std::error_code ignored;
    const std::string file =
        fs::exists(words[0], ignored) ? words[0] : find_in_path(words[0], environment);
    const bool direct = rules.no_python || (!rules.module && is_compiled(file));
    if (direct) {
      // Run a file in the current folder even if PATH does not contain the folder.
      const bool here = fs::exists(words[0], ignored) && words[0].find('/') == std::string::npos &&
                        find_in_path(words[0], environment).empty();
      program.argv = {here ? "./" + words[0] : words[0]};
    } else {
      program.argv = {python(environment), "-u"};
      if (rules.module) {
        program.argv.emplace_back("-m");
      }
      program.argv.push_back(words[0]);
    }
  }
  program.argument_at = program.argv.size();
  if (words.size() > 1) {
    program.argv.insert(program.argv.end(), words.begin() + 1, words.end());
  }
  return program;
}

}  // namespace lockstep::launch
