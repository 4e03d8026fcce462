// `lockstep doctor`: checks this machine and its ranks.
#include "cli/doctor.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/temporary_folder.h"
#include "cli/bandwidth.h"
#include "launch/doctor/checkup.h"
#include "launch/plan/devices.h"
#include "launch/plan/options.h"
#include "launch/plan/program.h"
#include "launch/workers/read_identity.h"
#include "launch/workers/supervisor.h"
#include "start/completion.h"

namespace lockstep::cli {
namespace {

using launch::Finding;
using launch::OptionKind;

constexpr launch::OptionSpec kOptions[] = {
    {"output", OptionKind::kValue, ".", "folder for checkpoints, whose disk is checked"},
    {"nproc",
     OptionKind::kValue,
     "",
     "ranks for the all-reduce on this machine [every GPU, at least 2]"},
    {"no-all-reduce", OptionKind::kFlag, "", "skip the all-reduce"},
    {"help", OptionKind::kFlag, "", "print this help", 'h'},
};
constexpr const char* kResult =
    "LOCKSTEP_DOCTOR_RESULT";  // file to which rank 0 writes the results

void add_measured(const Measured& measured, int ranks, int nodes, std::vector<Finding>& findings) {
  findings.push_back(launch::judge_bandwidth(ranks, measured.all_reduce, measured.expected));
  if (nodes > 1) {
    findings.push_back(launch::judge_clocks(measured.clocks, nodes));
  }
}

// Runs under a launcher. Every rank measures; rank 0 also checks its machine and prints the table.
int run_rank(const launch::WorkerIdentity& identity, const std::string& output) {
  const Measured measured = measure_ranks(identity);
  if (identity.rank != 0) {
    return 0;
  }
  if (const char* file = std::getenv(kResult)) {
    write_file_atomically(file, to_text(measured), ErrorKind::kEnvironment);
    return 0;
  }
  std::vector<Finding> findings = launch::examine_machine(launch::current_environment(), output);
  const int nodes = std::max(1, identity.world_size / std::max(1, identity.local_world_size));
  add_measured(measured, identity.world_size, nodes, findings);
  fmt::print("{}", launch::table_of(findings));
  return launch::exit_code_of(findings);
}

// Runs without a launcher: starts copies of this program as the ranks of a job.
void run_ranks(int ranks, std::vector<Finding>& findings) {
  std::string pattern = (temporary_folder() / "lockstep-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw system_error(ErrorKind::kEnvironment, "make", pattern);
  }
  const std::filesystem::path folder = pattern;
  launch::SupervisorOptions options;
  options.workers = ranks;
  options.argv = {launch::own_path(), "doctor"};
  options.environment[kResult] = (folder / "result").string();
  options.environment["OMP_NUM_THREADS"] = "1";
  options.name = "the all-reduce of lockstep doctor";
  const int code = launch::supervise(options);
  if (code == 0) {
    const auto text = read_file(folder / "result", ErrorKind::kEnvironment);
    add_measured(measured_from_text(text), ranks, 1, findings);
  } else {
    findings.push_back(
        {Finding::State::kBroken,
         "all-reduce",
         fmt::format("the ranks ended with {}", code),
         "see the report above"});
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace

int run_doctor(std::vector<std::string> arguments) {
  if (start::asks_for_completion(arguments)) {
    fmt::print("{}", start::complete(kOptions, arguments));
    return 0;
  }
  const launch::OptionRules rules{"lockstep doctor", true, ""};
  const launch::Environment environment = launch::current_environment();
  launch::Options options = launch::parse_options(kOptions, rules, arguments, environment);
  if (options.flag("help")) {
    fmt::print("usage: lockstep doctor [options]\n\n{}", launch::help_text(kOptions));
    return 0;
  }
  for (const std::string& word : options.rest()) {
    options.problem(fmt::format("unknown option '{}'", word));
  }
  const int gpus = static_cast<int>(launch::usable_gpus(environment).size());
  const int ranks =
      options.given("nproc") ? static_cast<int>(options.integer("nproc", 1)) : std::max(2, gpus);
  options.finish(rules);
  if (const auto identity = launch::read_identity(environment)) {
    return run_rank(*identity, options.text("output"));
  }
  std::vector<Finding> findings = launch::examine_machine(environment, options.text("output"));
  if (!options.flag("no-all-reduce") && ranks > 1) {
    run_ranks(ranks, findings);
  }
  fmt::print("{}", launch::table_of(findings));
  return launch::exit_code_of(findings);
}

}  // namespace lockstep::cli
