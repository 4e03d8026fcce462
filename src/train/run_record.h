// What a run's record (events.jsonl) and log say beside its steps: beginning and end, memory,
// spikes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/core/origin.h"
#include "data/loader.h"
#include "train/forecast.h"
#include "train/job.h"
#include "train/spikes.h"
#include "train/step_guard.h"

namespace lockstep::train {

/// "began": the step from which this attempt goes on, what is trained, by which program and plan,
/// where, on which data, and where the configuration's values came from. For rank 0; does nothing
/// where the job has no monitor.
void record_beginning(Job& job, const RankContext& rank_context, const config::Origins& origins);

/// "forecast": what a step was predicted to take, where that was predicted; and tells the monitor
/// the roofline. Likewise.
void record_forecast(Job& job, const std::optional<Forecast>& forecast);

/// "failed", of the exception that is being handled: its text and its exit code. Likewise.
void record_failure(Job& job);

/// Of a classifier of one label a row, by a head: the share of the step's rows that were told
/// rightly. Else nothing.
std::optional<double> accuracy_of(const Job& job, const parallel::StepResult& result);

/// What a step is reported with besides loss and norm: the objective's figures, the loads of
/// experts, the shares of a mixture's sources.
std::vector<std::pair<std::string, double>> step_metrics(
    const Job& job, const parallel::StepResult& result, const data::StepBatch& batch);

/// Memory by kind, of the rank that uses most, at the steps that are logged (monitor.log_memory).
/// Every rank must call.
void log_memory(Job& job, RankContext& rank_context);

/// Counts a step's rows to those of its epoch, of a classifier. Every rank must call.
void count_rows(Job& job, const parallel::StepResult& result, const data::StepBatch& batch);

/// Begins the rows of the next epoch; tells of this one's where no evaluation did. Likewise.
void end_epoch(Job& job, bool is_told);

/// What the attempt's saves took: the time that training waited, and the megabytes of the newest
/// checkpoint, those of tensors apart. For rank 0, at the end; does nothing where there was none.
void tell_of_saves(const Job& job, double seconds, int64_t saves);

/// Of a gradient's norm that is far beyond those before: a warning and the event "spike". For rank
/// 0, after the step; does nothing where there was none.
void tell_of_spike(Job& job, const std::optional<Spikes::Spike>& spike);

/// Of a step of float16 that was left out: the event "overflow". Likewise.
void tell_of_overflow(Job& job, const parallel::StepResult& result);

/// Of replicas that were found alike: the event "compared replicas". Likewise.
void tell_of_comparison(Job& job, double seconds);

/// Of a step that was computed twice: what came of it, and the event "computed twice". For rank 0,
/// after the step; does nothing where it was not.
void tell_of_repeat(Job& job, const GuardedStep& step);

}  // namespace lockstep::train
