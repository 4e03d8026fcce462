// Detects which launcher's options a command line uses.
#include "launch/frontends/compat.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "launch/agent/agent.h"
#include "launch/frontends/accelerate.h"
#include "launch/frontends/remote_run.h"
#include "launch/frontends/torchrun.h"
#include "launch/plan/cluster.h"

namespace lockstep::launch {
namespace {

struct Known {
  Surface surface;
  const char* name;
  std::span<const OptionSpec> options;
  OptionRules rules;
};

std::vector<Known> frontends() {
  return {
      {Surface::kTorchrun, "torchrun", torchrun_options(), torchrun_rules()},
      {Surface::kAccelerate, "accelerate", accelerate_options(), accelerate_rules()},
      {Surface::kDeepspeed, "deepspeed", deepspeed_options(), deepspeed_rules()}};
}

std::vector<OptionSpec> all_options() {
  std::vector<OptionSpec> all;
  for (const Known& known : frontends()) {
    all.insert(all.end(), known.options.begin(), known.options.end());
  }
  return all;
}

// Returns the value of --compat before the program. Empty if it is not given.
std::string compat_of(const std::vector<std::string>& arguments) {
  const std::vector<OptionSpec> all = all_options();
  for (size_t at = 0; at < arguments.size() && arguments[at].starts_with("-"); ++at) {
    const std::string& word = arguments[at];
    if (word.starts_with("--compat=")) {
      return word.substr(9);
    }
    if (word == "--compat" && at + 1 < arguments.size()) {
      return arguments[at + 1];
    }
    at += takes_next_word(all, word) ? 1 : 0;
  }
  return "";
}

std::string usage(const Known& known) {
  return fmt::format(
      "usage: lockstep launch [options of {}] PROGRAM [arguments]\n\n{}\nUse --compat "
      "torchrun|accelerate|deepspeed to select the launcher; otherwise it is inferred from the "
      "options.\n",
      known.name,
      help_text(known.options));
}

bool is_plain_torchrun(const Environment& environment, const LaunchPlan& plan) {
  return plan.rendezvous.kind == RendezvousPoint::Kind::kLocal && plan.max_nodes == 1 &&
         !environment.contains("LOCKSTEP_IGNORE_CLUSTER");
}

}  // namespace

Surface surface_of(const std::vector<std::string>& arguments) {
  const std::string compat = compat_of(arguments);
  if (compat == "torch.distributed.launch") {
    return Surface::kDistributedLaunch;
  }
  const std::vector<Known> all = frontends();
  for (const Known& known : all) {
    if (compat == known.name) {
      return known.surface;
    }
  }
  if (!compat.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--compat {}: unknown launcher", compat),
        "use torchrun, accelerate, deepspeed or torch.distributed.launch");
  }
  const std::vector<OptionSpec> words = all_options();
  std::vector<std::string> complaints;
  for (const Known& known : all) {
    const Recognised found = recognise(known.options, words, known.rules.prefixes, arguments);
    if (found.unknown.empty()) {
      return known.surface;
    }
    complaints.push_back(
        fmt::format("  {} does not accept {}", known.name, fmt::join(found.unknown, ", ")));
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("no launcher accepts all of these options:\n{}", fmt::join(complaints, "\n")),
      "`lockstep launch --compat torchrun --help` (or accelerate, deepspeed) lists the options of "
      "each");
}

LaunchRequest read_launch(
    const std::vector<std::string>& arguments, const Environment& environment) {
  const Surface surface = surface_of(arguments);
  LaunchRequest request;
  for (const Known& known : frontends()) {
    const bool meant = known.surface == surface || (surface == Surface::kDistributedLaunch &&
                                                    known.surface == Surface::kTorchrun);
    if (!meant) {
      continue;
    }
    const Options options = parse_options(known.options, known.rules, arguments, environment);
    if (options.flag("help")) {
      request.answer = usage(known);
      return request;
    }
    if (known.surface == Surface::kTorchrun && !options.text("print-completion").empty()) {
      options.finish(known.rules);
      request.answer =
          completion_script(known.options, "torchrun", options.text("print-completion"));
      return request;
    }
    if (arguments.empty()) {
      throw Error(
          ErrorKind::kConfig,
          "a program to launch is required",
          "for example: lockstep launch --nproc-per-node 2 train.py; see also --help");
    }
  }
  if (surface == Surface::kDeepspeed) {
    DeepspeedRequest deepspeed = plan_deepspeed(arguments, environment);
    request.plan = std::move(deepspeed.plan);
    request.remotes = std::move(deepspeed.commands);
    return request;
  }
  if (surface == Surface::kAccelerate) {
    AccelerateRequest accelerate = plan_accelerate(arguments, environment);
    request.plan = std::move(accelerate.plan);
    if (!accelerate.deepspeed.empty()) {
      DeepspeedRequest nodes =
          plan_deepspeed(accelerate.deepspeed, environment, request.plan.environment);
      request.plan = std::move(nodes.plan);
      request.remotes = std::move(nodes.commands);
    }
  } else {
    request.plan = plan_torchrun(arguments, environment, surface == Surface::kDistributedLaunch);
  }
  if (is_plain_torchrun(environment, request.plan)) {
    if (const auto place = find_cluster(environment)) {
      join_cluster(*place, environment, request.plan);
    }
  }
  return request;
}

int run_launch(const LaunchRequest& request) {
  return request.remotes.empty() ? run_agent(request.plan) : run_remotely(request.remotes);
}

}  // namespace lockstep::launch
