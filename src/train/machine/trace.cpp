// Records a trace of one training step.
#include "train/machine/trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::train {

using Kind = monitor::TraceEvent::Kind;

namespace {

/// Mean duration of a kind of pass in a stage.
struct Mean {
  double sum = 0;
  int64_t count = 0;
  double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

/// Simulates the schedule with instantaneous messages and with the mean duration of each kind of
/// pass per stage. Any additional time in the measured step is waiting that the schedule does not
/// require.
monitor::ForeseenPasses foresee(
    const schedule::Schedule& schedule,
    const std::vector<monitor::RankTrace>& ranks,
    const mesh::Mesh& mesh) {
  std::map<std::string, Mean, std::less<>> seconds;  // averaged over replicas
  for (const monitor::RankTrace& rank : ranks) {
    for (const monitor::TraceEvent& event : rank.events) {
      if (event.kind == Kind::kAction) {
        Mean& mean = seconds[event.name];
        mean.sum += event.end - event.begin;
        ++mean.count;
      }
    }
  }
  std::map<std::pair<int, schedule::ActionKind>, Mean> means;
  for (const auto& actions : schedule.actions) {
    for (const schedule::Action& action : actions) {
      if (const auto found = seconds.find(schedule::action_text(action)); found != seconds.end()) {
        Mean& mean = means[{action.stage, action.kind}];
        mean.sum += found->second.value();
        ++mean.count;
      }
    }
  }
  schedule::Durations durations;
  durations.message.assign(static_cast<size_t>(schedule.stages), 0);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto of = [&](schedule::ActionKind kind) { return means[{stage, kind}].value(); };
    const double both = of(schedule::ActionKind::kBackward);
    durations.stages.push_back(
        {of(schedule::ActionKind::kForward),
         both > 0 ? both / 2 : of(schedule::ActionKind::kBackwardInput),
         both > 0 ? both / 2 : of(schedule::ActionKind::kBackwardWeight)});
  }
  const schedule::Timeline timeline = schedule::time_schedule(schedule, durations);
  monitor::ForeseenPasses foreseen;
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    auto& passes = foreseen.passes.emplace_back();
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const schedule::Span& span = timeline.spans[rank][i];
      passes.push_back(
          {Kind::kAction, schedule::action_text(schedule.actions[rank][i]), span.start, span.end});
    }
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    foreseen.place.push_back(static_cast<int>(mesh.coordinate(static_cast<int>(rank)).pipeline));
  }
  return foreseen;
}

}  // namespace

double StepTrace::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepTrace::StepTrace(
    parallel::ParallelModel& model, parallel::ParallelGroups& axes, RankContext& rank_context)
    : model_(model),
      axes_(axes),
      rank_context_(rank_context),
      kernels_(rank_context.device) {
  trace_.rank = rank_context.rank();
  trace_.label = axes.coordinate().text();
  model_.pipeline().set_observer([this](const parallel::ActionTimes& times) {
    const std::string name = schedule::action_text(times.action);
    if (times.started > times.called) {
      trace_.events.push_back({Kind::kStageWait, name, times.called, times.started});
    }
    trace_.events.push_back({Kind::kAction, name, times.started, times.ended});
  });
  axes_.visit_groups([this](comm::Communicator& group) {
    group.set_finish_observer([this](const comm::Finished& call) {
      const std::string what = call.what.empty() ? "" : fmt::format(" {}", call.what);
      trace_.events.push_back(
          {Kind::kCommunication,
           std::string(call.operation) + what,  // "all_gather layer 3"
           call.began,
           call.ended,
           std::string(call.group),
           call.bytes,
           call.waited_from});
    });
  });
  model_.offloaded_optimizer().set_copy_observer([this](const parallel::OffloadCopy& copy) {
    trace_.events.push_back(
        {Kind::kCopy,
         std::string(copy.what),
         copy.began,
         copy.ended,
         "",
         copy.bytes,
         copy.waited_from});
  });
  trace_.begin = now();
}

StepTrace::~StepTrace() {
  stop_watching();
}

void StepTrace::stop_watching() {
  model_.pipeline().set_observer(nullptr);
  model_.offloaded_optimizer().set_copy_observer(nullptr);
  axes_.visit_groups([](comm::Communicator& group) { group.set_finish_observer(nullptr); });
}

void StepTrace::mark(const char* name, double begin) {
  trace_.events.push_back({Kind::kOther, name, begin, now()});
}

void StepTrace::write(const std::filesystem::path& file) {
  trace_.end = now();
  stop_watching();
  const std::string kernels = kernels_.write(
      file.parent_path() /
      fmt::format("{}-kernels-rank{}.json", file.stem().string(), rank_context_.rank()));
  if (rank_context_.local_size != rank_context_.size()) {
    // Clocks of different nodes are unrelated, so zero is the time at which all ranks leave a
    // barrier.
    rank_context_.communicator.barrier();
    const double zero = now();
    trace_.begin -= zero;
    trace_.end -= zero;
    for (monitor::TraceEvent& event : trace_.events) {
      event.begin -= zero;
      event.end -= zero;
      event.waited_from -= zero;
    }
  }
  std::vector<monitor::RankTrace> ranks;
  for (const std::string& text :
       comm::gather_strings(rank_context_.communicator, monitor::to_text(trace_))) {
    if (rank_context_.is_first()) {
      ranks.push_back(monitor::from_text(text));
    }
  }
  on_first_rank(rank_context_.communicator, [&] {
    // The last step of an epoch may have fewer micro-batches.
    const auto is_first_pass = [](const monitor::TraceEvent& event) {
      return event.kind == Kind::kAction && event.name.starts_with("0F");
    };
    const auto micro_batches =
        static_cast<int>(std::ranges::count_if(ranks.front().events, is_first_pass));
    const monitor::ForeseenPasses foreseen =
        axes_.mesh().pipeline > 1
            ? foresee(model_.pipeline().schedules().of(micro_batches), ranks, axes_.mesh())
            : monitor::ForeseenPasses{};
    write_file_atomically(file, monitor::chrome_trace(ranks, foreseen), ErrorKind::kEnvironment);
    log_info("trace: {}\n{}{}", file.string(), monitor::summary_table(ranks), kernels);
    return "";
  });
}

}  // namespace lockstep::train
