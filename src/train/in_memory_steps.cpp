// Creates and saves in-memory checkpoints of a job, and recovers from them.
#include "train/in_memory_steps.h"

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/persistent_memory.h"
#include "base/rank_status.h"
#include "checkpoint/checkpoint.h"
#include "monitor/memory.h"
#include "monitor/trainer_state.h"
#include "train/averages.h"
#include "train/checkpointing.h"

namespace lockstep::train {
namespace {

/// Returns the state without the tensors and without the monitor's growing history, which is in
/// metrics.jsonl.
std::string about_step(Job& job, const RankContext& rank_context) {
  monitor::TrainerState& state = job.monitor->state();
  auto history = std::exchange(state.log_history, {});
  const std::string monitored = monitor::to_json(state);
  state.log_history = std::move(history);
  return nlohmann::json{{"state", state_json(job, rank_context)}, {"monitor", monitored}}.dump();
}

/// Returns trainer_state.json with the history up to `step`.
std::string with_history(const std::string& monitored, const Job& job, int64_t step) {
  monitor::TrainerState state = monitor::parse_trainer_state(monitored, "the in-memory state");
  const std::filesystem::path log =
      std::filesystem::path(job.config.training.output_dir) / "metrics.jsonl";
  if (std::filesystem::exists(log)) {
    state.log_history = monitor::history_until(log, step);
  }
  return monitor::to_json(state);
}

}  // namespace

std::unique_ptr<checkpoint::InMemoryCheckpoint> make_in_memory_checkpoint(
    Job& job, RankContext& rank_context) {
  if (job.config.checkpoint.in_memory_replicas == 0) {
    return nullptr;
  }
  const int memory = rank_context.ranks_are_threads ? -1 : persistent_memory();  // one per process
  const auto answers = comm::gather_strings(rank_context.communicator, memory < 0 ? "none" : "");
  for (const std::string& answer : answers) {
    if (!answer.empty()) {
      if (rank_context.is_first()) {
        log_warning(
            "checkpoint.in_memory_replicas=1 is ignored: no launcher provides memory for it; start "
            "the job with `lockstep launch --max-restarts N`");
      }
      return nullptr;
    }
  }
  auto kept = std::make_unique<checkpoint::InMemoryCheckpoint>(
      group_beside_training(rank_context, "replicas"),
      memory,
      checkpoint::InMemoryRound{
          rank_context.round.job, rank_context.round.term, rank_context.round.number},
      rank_context.round.node);
  const int64_t bytes = kept->filled_by(owned_bytes(job, /*with_optimizer=*/true));
  if (!has_room(bytes - kept_bytes(memory), rank_context)) {
    if (rank_context.is_first()) {
      log_warning(
          "checkpoint.in_memory_replicas=1 is ignored: not enough memory for {} per rank",
          monitor::format_bytes(bytes));
    }
    return nullptr;
  }
  if (rank_context.is_first()) {
    log_info(
        "the state of each {} is kept in memory, {} per rank{}",
        job.config.checkpoint.replica_steps == 1
            ? "step"
            : fmt::format("{}th step", job.config.checkpoint.replica_steps),
        monitor::format_bytes(bytes),
        kept->has_neighbours()
            ? ", with a replica on the next node"
            : ", on a single node: its loss costs the steps since the last checkpoint");
  }
  return kept;
}

void wait_for_in_memory_step(Job& job) {
  if (job.kept != nullptr) {
    job.kept->wait();
  }
}

double keep_step(Job& job, RankContext& rank_context) {
  if (job.kept == nullptr || job.progress.step % job.config.checkpoint.replica_steps != 0) {
    return 0;
  }
  const double began = seconds_now();
  begin_phase("keeping the state in memory");
  if (job.model->optimizer().has_averages()) {
    before_state_update(
        job);  // swapping in the averages overwrites tensors that a save may be copying
  }
  const Averages averages(*job.model);
  job.kept->keep(
      job.progress.step,
      owned_pieces(job, /*with_optimizer=*/true, rank_context),
      rank_context.is_first() ? about_step(job, rank_context) : "");
  if (averages.are_put()) {
    before_state_update(job);  // the averages are about to be swapped out
  }
  return seconds_now() - began;
}

std::optional<std::filesystem::path> recover_in_memory_step(
    Job& job, const std::optional<std::filesystem::path>& found, RankContext& rank_context) {
  if (job.config.checkpoint.in_memory_replicas == 0 || rank_context.round.number == 0) {
    return found;
  }
  std::optional<checkpoint::InMemoryStep> kept;
  try {
    kept = checkpoint::find_in_memory_step(
        persistent_memory(), rank_context.round.job, rank_context.communicator);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) {
      throw;
    }
    if (rank_context.is_first()) {
      log_warning("the in-memory checkpoint is damaged: {}", error.message());
    }
  }
  const std::filesystem::path output = job.config.training.output_dir;
  const bool is_own = found && found->parent_path() == output;
  if (!kept || (is_own && checkpoint::checkpoint_step(*found).value_or(-1) >= kept->step)) {
    if (!kept && rank_context.is_first()) {
      log_warning("no complete in-memory checkpoint: resuming from disk");
    }
    return found;
  }
  std::string state;
  checkpoint::SmallFiles files;
  if (rank_context.is_first()) {
    const nlohmann::json about =
        parse_json(kept->about, "the in-memory state", ErrorKind::kCheckpoint);
    state = about.at("state");
    files = model_files(job);
    files[std::string(kTrainerState)] = with_history(about.at("monitor"), job, kept->step);
    files["config.yaml"] = job.resolved;
    log_info("step {} was kept in memory: saving it before resuming", kept->step);
  }
  const std::filesystem::path folder = checkpoint_folder(output, kept->step);
  try {
    checkpoint::save_checkpoint(
        folder,
        kept->pieces,
        state,
        files,
        rank_context.communicator,
        {.hold = job.hold.get(), .stored = job.stored.get(), .finite = true});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNumeric) {
      throw;
    }
    if (rank_context.is_first()) {
      log_warning(
          "the in-memory checkpoint cannot be used, resuming from disk: {}", error.message());
    }
    return found;
  }
  return folder;
}

}  // namespace lockstep::train
