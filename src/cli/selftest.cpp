// `lockstep selftest`: runs all checks and prints them.
#include "cli/selftest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/rank_context.h"
#include "cli/selftest_checks.h"
#include "launch/doctor/checkup.h"
#include "launch/plan/options.h"
#include "launch/workers/worker_environment.h"
#include "start/completion.h"

namespace lockstep::cli {
namespace {

using launch::OptionKind;

constexpr launch::OptionSpec kSelftestOptions[] = {
    {"nproc", OptionKind::kValue, "", "ranks [every GPU, otherwise 2]"},
    {"use-cpu", OptionKind::kFlag, "", "do not use GPUs"},
    {"json", OptionKind::kValue, "", "write all results to this file, to attach to a report"},
    {"help", OptionKind::kFlag, "", "print this help", 'h'},
};

Check check_of(const launch::Finding& finding) {
  const bool passed = finding.state != launch::Finding::State::kBroken;
  return {"machine", finding.what, passed, finding.value};
}

nlohmann::json json_of(
    const std::vector<Check>& checks, const train::RankContext& rank_context, double seconds) {
  nlohmann::json result{
      {"ranks", rank_context.size()}, {"device", rank_context.device.str()}, {"seconds", seconds}};
  for (const Check& check : checks) {
    nlohmann::json row{
        {"group", check.group},
        {"name", check.name},
        {"passed", check.passed},
        {"detail", check.detail}};
    if (check.bytes_a_second > 0) {
      row["bytes_a_second"] = check.bytes_a_second;
    }
    result["checks"].push_back(row);
  }
  return result;
}

/// Prints one line per group with its worst result, and one line for each failed check.
void print_checks(
    const std::vector<Check>& checks, const train::RankContext& rank_context, double seconds) {
  std::vector<std::string> groups;
  for (const Check& check : checks) {
    if (std::find(groups.begin(), groups.end(), check.group) == groups.end()) {
      groups.push_back(check.group);
    }
  }
  int failed = 0;
  for (const std::string& group : groups) {
    int passed = 0, all = 0;
    std::vector<const Check*> told;  // slowest check of each kind
    for (const Check& check : checks) {
      if (check.group != group) {
        continue;
      }
      ++all;
      passed += check.passed ? 1 : 0;
      const auto alike = std::find_if(told.begin(), told.end(), [&](const Check* other) {
        return !check.kind.empty() && other->kind == check.kind;
      });
      if (alike == told.end()) {
        told.push_back(&check);
      } else if (check.bytes_a_second < (*alike)->bytes_a_second) {
        *alike = &check;
      }
    }
    fmt::print(
        "{:<12} {} of {} passed{}\n", group, passed, all, group == "pairs" ? "; the slowest:" : "");
    for (const Check* check : told) {
      if (check->bytes_a_second > 0) {
        fmt::print("  {:<32} {:>8.2f} GB/s\n", check->name, check->bytes_a_second / 1e9);
      }
    }
    for (const Check& check : checks) {
      if (check.group == group && !check.passed) {
        fmt::print("  FAILED {}: {}\n", check.name, check.detail);
      }
    }
    failed += all - passed;
  }
  const char* where = rank_context.device.is_cpu() ? "the CPU" : "GPUs";
  fmt::print(
      "\n{} on {} rank{} of {}, in {:.0f} s\n",
      failed == 0 ? "all checks passed" : fmt::format("{} checks failed", failed),
      rank_context.size(),
      rank_context.size() == 1 ? "" : "s",
      where,
      seconds);
}

int selftest(train::RankContext& rank_context, const std::string& file) {
  const double began = seconds_now();
  std::vector<Check> checks;
  if (rank_context.is_first()) {
    for (const launch::Finding& finding :
         launch::examine_machine(launch::current_environment(), ".")) {
      checks.push_back(check_of(finding));
    }
  }
  for (const auto part :
       {check_operations, check_collectives, check_plans, check_graphs, check_checkpoint}) {
    const std::vector<Check> more = part(rank_context);
    checks.insert(checks.end(), more.begin(), more.end());
  }
  const double seconds = seconds_now() - began;
  if (!rank_context.is_first()) {
    return 0;  // a nonzero code would end rank 0 before it has printed its results
  }
  print_checks(checks, rank_context, seconds);
  if (!file.empty()) {
    write_file_atomically(
        file, json_of(checks, rank_context, seconds).dump(1) + "\n", ErrorKind::kEnvironment);
  }
  const bool passed =
      std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.passed; });
  return passed ? 0 : exit_code(ErrorKind::kNumeric);
}

}  // namespace

int run_selftest(std::vector<std::string> arguments) {
  if (start::asks_for_completion(arguments)) {
    fmt::print("{}", start::complete(kSelftestOptions, arguments));
    return 0;
  }
  const launch::OptionRules rules{"lockstep selftest", true, ""};
  launch::Options options =
      launch::parse_options(kSelftestOptions, rules, arguments, launch::current_environment());
  if (options.flag("help")) {
    fmt::print("usage: lockstep selftest [options]\n\n{}", launch::help_text(kSelftestOptions));
    return 0;
  }
  for (const std::string& word : options.rest()) {
    options.problem(fmt::format("unknown option '{}'", word));
  }
  RankOptions ranks;
  ranks.command = "selftest";
  ranks.arguments = std::move(arguments);
  ranks.use_cpu = options.flag("use-cpu");
  if (options.given("nproc")) {
    ranks.ranks = options.integer("nproc", 1);
  }
  options.finish(rules);
  if (!ranks.ranks && (ranks.use_cpu || train::visible_gpus() == 0)) {
    ranks.ranks = 2;
  }
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    return selftest(rank_context, options.text("json"));
  });
}

}  // namespace lockstep::cli
