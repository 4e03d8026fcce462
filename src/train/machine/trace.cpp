#include "train/machine/trace.h"

#include <chrono>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "schedule/schedule.h"

namespace lockstep::train {

using Kind = monitor::TraceEvent::Kind;

double StepTrace::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepTrace::StepTrace(parallel::ParallelModel& model, parallel::Axes& axes, World& world)
    : model_(model),
      axes_(axes),
      world_(world) {
  trace_.rank = world.rank();
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
  if (world_.local_size != world_.size()) {
    // Clocks of several machines have nothing in common: what all ranks leave together is zero.
    world_.communicator.barrier();
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
       comm::gather_strings(world_.communicator, monitor::to_text(trace_))) {
    if (world_.is_first()) {
      ranks.push_back(monitor::from_text(text));
    }
  }
  on_first_rank(world_.communicator, [&] {
    write_file_atomically(file, monitor::chrome_trace(ranks), ErrorKind::kEnvironment);
    log_info("trace: {}\n{}", file.string(), monitor::summary_table(ranks));
    return "";
  });
}

}  // namespace lockstep::train
