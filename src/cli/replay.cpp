// `lockstep replay`: repeats steps and compares them.
#include "cli/replay.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "cli/rank_context.h"
#include "cli/report_error.h"
#include "config/print.h"
#include "config/resolve.h"
#include "start/completion.h"
#include "start/train.h"
#include "train/trainer.h"
#include "watch/record/run.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kOnOtherRanks = 1e-5;  // tolerance for sums in another order
constexpr int64_t kShownSteps = 20;

Error usage(const std::string& message) {
  return Error(ErrorKind::kConfig, message, "lockstep replay RUN/checkpoint-100 --step 120");
}

/// Returns the step number in a checkpoint's name.
int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  constexpr std::string_view kPrefix = "checkpoint-";
  char* end = nullptr;
  const int64_t step =
      name.starts_with(kPrefix) ? std::strtoll(name.c_str() + kPrefix.size(), &end, 10) : -1;
  if (step < 0 || end == name.c_str() + kPrefix.size() || *end != '\0') {
    throw usage(fmt::format("'{}' is not a checkpoint-STEP folder of a run", checkpoint.string()));
  }
  return step;
}

config::ResolveOptions replay_options() {
  config::ResolveOptions options = start::train_options();
  options.command = "replay";
  options.usage = "lockstep replay CHECKPOINT [--step N] [key=value | --key value]...\n";
  std::erase_if(options.flags, [](const config::Flag& flag) {
    return flag.name == "dry-run" || flag.name == "json-schema" || flag.name == "print-config";
  });
  options.flags.push_back(
      {"step", config::Flag::Kind::kValue, "Last step to repeat. int; default: the next one"});
  return options;
}

/// Values of one step, or means over several.
struct Logged {
  std::optional<double> loss, norm;
};

/// Returns the last values that a run logged for each step.
std::map<int64_t, Logged> logged_steps(const fs::path& run) {
  std::map<int64_t, Logged> steps;
  for_each_line(run / "metrics.jsonl", [&](std::string_view text) {
    const nlohmann::json line = parse_json_line(text);
    if (!line.contains("loss") || !line.contains("step") || !line.at("step").is_number_integer()) {
      return;
    }
    const auto number = [&](const char* name) {
      const auto found = line.find(name);
      return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                       : std::nullopt;
    };
    steps[line.at("step").get<int64_t>()] = {number("loss"), number("grad_norm")};
  });
  return steps;
}

bool agree(const std::optional<double>& then, const std::optional<double>& now, double tolerance) {
  if (!then || !now) {
    return !then && !now;
  }
  return *then == *now || std::abs(*then - *now) <= tolerance * std::max(1.0, std::abs(*then));
}

std::string text_of(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

/// Compares the recorded values with the new ones and prints one line per step. Returns true if all
/// agree.
bool compare(const fs::path& run, const fs::path& again, int64_t from, bool same_ranks) {
  const auto recorded = logged_steps(run), replayed = logged_steps(again);
  const double tolerance = same_ranks ? 0 : kOnOtherRanks;
  int64_t compared = 0, differing = 0, before = 0;
  for (const auto& [step, then] : recorded) {
    const int64_t first = std::exchange(before, step) + 1;
    // A line contains the mean over the steps since the previous line.
    if (first <= from || !replayed.contains(step)) {
      continue;
    }
    Logged now{.loss = 0, .norm = replayed.at(step).norm};
    for (int64_t each = first; each <= step; ++each) {
      const auto found = replayed.find(each);
      *now.loss += found != replayed.end() ? found->second.loss.value_or(NAN) : NAN;
    }
    *now.loss /= static_cast<double>(step - first + 1);
    const bool same =
        agree(then.loss, now.loss, tolerance) && agree(then.norm, now.norm, tolerance);
    differing += same ? 0 : 1;
    if (++compared <= kShownSteps || !same) {
      fmt::print(
          "step {}: loss {}, gradient norm {}: {}\n",
          step,
          text_of(now.loss),
          text_of(now.norm),
          same ? "as recorded"
               : fmt::format("recorded were {} and {}", text_of(then.loss), text_of(then.norm)));
    }
  }
  if (compared == 0) {
    for (const auto& [step, now] : replayed) {
      fmt::print(
          "step {}: loss {}, gradient norm {}: not recorded\n",
          step,
          text_of(now.loss),
          text_of(now.norm));
    }
    return true;
  }
  fmt::print(
      "{} of {} recorded lines are reproduced{}\n",
      compared - differing,
      compared,
      same_ranks ? " bit for bit" : " within 1e-5 (on another number of ranks)");
  if (differing > 0) {
    fmt::print(
        "the differing values were computed differently: memory, a CPU or a link produced a wrong "
        "result then or now (replay again to find out), or another version or machine rounds "
        "differently\n");
  }
  return differing == 0;
}

}  // namespace

int run_replay(std::vector<std::string> arguments) {
  if (!arguments.empty() && (arguments.front().starts_with("--help") || arguments.front() == "-h" ||
                             start::asks_for_completion(arguments))) {
    const config::ResolveOptions options = replay_options();
    return start::print_help(options, config::resolve(arguments, options), arguments);
  }
  if (arguments.empty() || arguments.front().starts_with("-")) {
    throw usage("replay: the folder of a checkpoint is required as the first argument");
  }
  const std::vector<std::string> given = arguments;
  fs::path checkpoint = arguments.front();
  if (!checkpoint.has_filename()) {
    checkpoint = checkpoint.parent_path();  // path with a trailing slash
  }
  const int64_t from = step_of(checkpoint);
  if (!fs::exists(checkpoint / "config.yaml")) {
    throw usage(fmt::format("{} has no config.yaml", checkpoint.string()));
  }
  const fs::path run = checkpoint.has_parent_path() ? checkpoint.parent_path() : fs::path(".");
  std::vector<std::string> words{"-c", (checkpoint / "config.yaml").string()};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  const config::ResolveOptions options = replay_options();
  const int64_t to = config::resolve(words, options).integer("step", from + 1).value_or(from + 1);
  const fs::path again = run / fmt::format("replay-{}", to);
  for (const std::string& word :
       {"training.output_dir=" + again.string(),
        "training.resume_from_checkpoint=" + checkpoint.string(),
        std::string("training.overwrite_output_dir=true"),  // an earlier replay
        std::string("training.logging_strategy=steps"),
        std::string("training.logging_steps=1"),
        std::string("training.save_strategy=no"),
        std::string("training.load_best_model_at_end=false"),
        std::string("training.report_to=none"),
        std::string("monitor.page=false")}) {
    words.push_back(word);
  }
  const config::Resolution resolution = config::resolve(words, options);
  const auto recorded = watch::is_run(run)
                            ? watch::summarize(run, static_cast<double>(std::time(nullptr))).ranks
                            : int64_t{0};
  RankOptions ranks;
  ranks.command = "replay";
  ranks.arguments = given;
  ranks.ranks = resolution.integer("nproc", 1);
  if (!ranks.ranks && recorded > 0) {
    ranks.ranks = recorded;
  }
  ranks.use_cpu = resolution.config.training.use_cpu;
  ranks.in_process = resolution.has("in-process");
  ranks.timeout = std::chrono::seconds(resolution.config.training.ddp_timeout);
  ranks.shared_memory = resolution.config.training.ddp_backend != "gloo";
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    const int code = with_our_errors([&] {
      return train::run_training(
          resolution.config,
          config::to_yaml(resolution.config, resolution.origins),
          rank_context,
          {.trace = resolution.value("trace").value_or(""),
           .origins = resolution.origins,
           .last_step = to});
    });
    if (code != 0 || !rank_context.is_first()) {
      return code;
    }
    if (!logged_steps(again).contains(to)) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("step {} is not a step of {} after step {}", to, checkpoint.string(), from),
          "give a later step; if the run was extended, also give its max_steps");
    }
    return compare(run, again, from, rank_context.size() == recorded)
               ? 0
               : exit_code(ErrorKind::kNumeric);
  });
}

}  // namespace lockstep::cli
