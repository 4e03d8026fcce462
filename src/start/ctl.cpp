// `lockstep ctl`: controls a running job.
#include "start/ctl.h"

#include <charconv>
#include <ctime>
#include <filesystem>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "monitor/progress.h"
#include "start/parse.h"
#include "start/ranks.h"
#include "watch/control/server.h"
#include "watch/record/run.h"

namespace lockstep::start {
namespace {

using json = nlohmann::ordered_json;

Error usage(const std::string& message) {
  return Error(
      ErrorKind::kConfig,
      message,
      "status, stacks, save, stop, eval, log LEVEL, trace STEPS, set logging_steps=NUMBER, or set "
      "learning_rate=NUMBER");
}

/// Parses a number. The whole word must be a number.
template <class T>
T number_of(const std::string& word, const char* what) {
  T value{};
  const auto [rest, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem != std::errc() || rest != word.data() + word.size()) {
    throw usage(fmt::format("'{}' is not a valid {}", word, what));
  }
  return value;
}

json request_of(const std::string& act, const std::vector<std::string>& words, bool force) {
  const size_t wanted = act == "log" || act == "trace" || act == "set" ? 1 : 0;
  if (words.size() != wanted) {
    throw usage(fmt::format("{} takes {}", act, wanted == 0 ? "no argument" : "one argument"));
  }
  json request{{"act", act}};
  if (act == "log") {
    request["level"] = words[0];
  } else if (act == "trace") {
    request["steps"] = number_of<int64_t>(words[0], "number of steps");
  } else if (act == "set") {
    constexpr std::string_view kKey = "learning_rate=", kEvery = "logging_steps=";
    std::string word = words[0];
    if (word.starts_with("training.")) {
      word.erase(0, word.find('.') + 1);
    }
    if (word.starts_with(kEvery)) {
      request["logging_steps"] = number_of<int64_t>(word.substr(kEvery.size()), "number of steps");
      return request;
    }
    if (!word.starts_with(kKey)) {
      throw usage(fmt::format("'{}' cannot be changed during a run", words[0]));
    }
    request["learning_rate"] = number_of<double>(word.substr(kKey.size()), "learning rate");
    request["force"] = force;
  }
  return request;
}

std::string status_text(const json& status) {
  std::string text = fmt::format(
      "step {} of {}, {:.2f} epochs, {} ranks\n",
      status.value("step", int64_t{0}),
      status.value("steps", int64_t{0}),
      status.value("epoch", 0.0),
      status.value("ranks", 1));
  for (const char* const name : {"loss", "learning_rate", "tokens_per_s"}) {
    if (status.contains(name) && status.at(name).is_number()) {  // the loss may be missing
      text += fmt::format("{} {:.6g}\n", name, status.at(name).get<double>());
    }
  }
  if (status.contains("seconds_left")) {
    text += fmt::format("{} left\n", monitor::format_duration(status.at("seconds_left")));
  }
  return text + fmt::format("as of {:.1f} s ago\n", status.value("age_s", 0.0));
}

/// Sends a request to the run. If no run listens, reports how the run ended.
json ask(const std::string& folder, const json& request) {
  try {
    return watch::ask_run(folder, request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEnvironment || !watch::is_run(folder)) {
      throw;
    }
    const watch::RunSummary run = watch::summarize(folder, static_cast<double>(std::time(nullptr)));
    if (run.end == watch::End::kRunning) {
      throw;
    }
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("{} has ended at step {}: {}", folder, run.step, end_text(run)),
        "continue it: lockstep train -c " + folder +
            "/config.yaml resume_from_checkpoint=true max_steps=...");
  }
}

}  // namespace

int run_ctl(std::vector<std::string> arguments) {
  std::string folder, act;
  std::vector<std::string> words;
  bool force = false, as_json = false;
  CLI::App app(
      "Control a run on this machine: status, stacks, save, stop, eval, log LEVEL, trace STEPS, "
      "set logging_steps=NUMBER, set learning_rate=NUMBER. All ranks act between two steps; stacks "
      "reads the ranks of this machine from outside, so it also works for a hanging rank.",
      "lockstep ctl");
  app.add_option("run", folder, "The run's output_dir")->required();
  app.add_option("act", act, "The action")->required();
  app.add_option("words", words, "Argument of the action");
  app.add_flag(
      "--force", force, "Allow an action that makes the run deviate from its configuration");
  app.add_flag("--json", as_json, "Print the answer as a JSON object");
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  if (folder == "stacks" && std::filesystem::is_directory(act)) {
    std::swap(folder, act);  // the action may come first, as in "ctl save RUN"
  }
  if (act == "stacks") {
    if (!words.empty()) {
      throw usage("stacks takes no arguments");
    }
    const std::string text = ranks_text(folder, /*with_stacks=*/true);
    fmt::print("{}", as_json ? json{{"ok", true}, {"text", text}}.dump() + "\n" : text);
    return 0;
  }
  const json answer = ask(folder, request_of(act, words, force));
  if (!answer.value("ok", false)) {
    throw Error(ErrorKind::kConfig, fmt::format("the run refused: {}", answer.value("text", "")));
  }
  if (as_json) {
    fmt::print("{}\n", answer.dump());
  } else {
    fmt::print("{}", act == "status" ? status_text(answer) : answer.value("text", "") + "\n");
  }
  return 0;
}

}  // namespace lockstep::start
