// `lockstep train` and `lockstep unlearn`.
#include "cli/train.h"

#include <csignal>

#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/log.h"
#include "cli/memory_advice.h"
#include "cli/rank_context.h"
#include "cli/report_error.h"
#include "config/resolve.h"
#include "launch/record.h"
#include "launch/workers/read_identity.h"
#include "launch/workers/worker_environment.h"
#include "start/train.h"
#include "train/dry_run.h"
#include "train/trainer.h"
#include "train/weights/adapter_folder.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

LogLevel level_of(const std::string& name) {
  if (name == "debug") {
    return LogLevel::kDebug;
  }
  return name == "warning"                       ? LogLevel::kWarning
         : name == "error" || name == "critical" ? LogLevel::kError
                                                 : LogLevel::kInfo;
}

/// Throws Error if a local model does not exist, in the process that starts the ranks: all of them
/// would report it. The libraries for object stores must not be loaded before ranks are forked.
void check_model_exists(const config::Config& config) {
  const bool is_rank = launch::read_identity(launch::current_environment()).has_value();
  const bool is_remote = config.model.path.find("://") != std::string::npos;
  if (!is_rank && !is_remote) {
    (void)train::find_source(config.model.path, config.model.preset);
  }
}

/// Sends standard error to standard output if it is a terminal and standard output is a pipe, as in
/// `lockstep train ... | tee log`: the log then contains every line, and tee shows it.
void write_log_to_pipe() {
  struct stat output{};
  if (::isatty(STDERR_FILENO) != 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
      S_ISFIFO(output.st_mode)) {
    ::dup2(STDOUT_FILENO, STDERR_FILENO);
  }
}

}  // namespace

int run_train(std::vector<std::string> arguments) {
  config::Resolution resolution = config::resolve(arguments, start::train_options());
  train::use_adapter_folder(resolution.config);
  const config::TrainingSection& training = resolution.config.training;
  if (resolution.has("dry-run")) {
    start::warn(resolution.warnings);
    fmt::print("{}", train::dry_run(resolution.config, resolution.integer("nproc", 1).value_or(1)));
    return 0;
  }
  if (resolution.config.monitor.progress != "json") {
    write_log_to_pipe();
  }
  check_model_exists(resolution.config);
  RankOptions ranks;
  ranks.command = "train";
  ranks.arguments = std::move(arguments);
  ranks.ranks = resolution.integer("nproc", 1);
  ranks.use_cpu = training.use_cpu;
  ranks.in_process = resolution.has("in-process");
  ranks.timeout = std::chrono::seconds(training.ddp_timeout);
  ranks.shared_memory = training.ddp_backend != "gloo";
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    std::signal(signal, SIG_IGN);  // ignored until the run can save a checkpoint
  }
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    if (rank_context.is_first() || !ranks.in_process) {  // the log level belongs to the process
      set_log_level(
          level_of(rank_context.is_first() ? training.log_level : training.log_level_replica));
    }
    if (rank_context.is_first()) {
      start::warn(resolution.warnings);
    }
    try {
      return with_our_errors([&] {
        return train::run_training(
            resolution.config,
            config::to_yaml(resolution.config, resolution.origins),
            rank_context,
            {.on_step = launch::set_recorded_step,
             .forecast =
                 {.cluster = resolution.value("cluster").value_or(""),
                  .misfit = resolution.has("force") ? train::Misfit::kRun : train::Misfit::kRefuse},
             .trace = resolution.value("trace").value_or(""),
             .origins = resolution.origins});
      });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kOutOfMemory) {
        throw;
      }
      throw with_cheapest_changes(error, resolution.config, rank_context.size());
    }
  });
}

int run_unlearn(std::vector<std::string> arguments) {
  arguments.emplace_back("task.type=unlearning");
  return run_train(std::move(arguments));
}

}  // namespace lockstep::cli
