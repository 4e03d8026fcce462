// Run record (events.jsonl) and log lines other than steps: start and end, memory, spikes.
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
#include "train/time_account.h"

namespace lockstep::train {

/// Records the event "began": the step from which this attempt continues, the model, program
/// version and plan, machines, data, and the origins of the configuration's values. Must be called
/// on rank 0; does nothing if the job has no monitor.
void record_beginning(Job& job, const RankContext& rank_context, const config::Origins& origins);

/// Records the event "forecast", the prediction of a step, if one was made. Passes the roofline to
/// the monitor. Must be called on rank 0; does nothing if the job has no monitor.
void record_forecast(Job& job, const std::optional<Forecast>& forecast);

/// Records "measured": the prediction and the measured step time and peak memory of a rank. Call on
/// rank 0 at the end.
void record_measured(
    Job& job, const Forecast& forecast, double step_seconds, double peak_memory_bytes);

/// Records "failed" with the text and exit code of the current exception. Call on rank 0; does
/// nothing if the job has no monitor.
void record_failure(Job& job);

/// Returns the share of a step's rows that were classified correctly. Only for single-label
/// classifiers with a classification head; otherwise empty.
std::optional<double> accuracy_of(const Job& job, const parallel::StepResult& result);

/// Returns the values that are reported for a step besides loss and gradient norm: the objective's
/// metrics, expert loads, and the shares of a mixture's sources.
std::vector<std::pair<std::string, double>> step_metrics(
    const Job& job, const parallel::StepResult& result, const data::StepBatch& batch);

/// Logs why training ends before its last step (early stopping) and records "stopping early". Call
/// on rank 0; does nothing if the job has no monitor.
void tell_of_early_stop(Job& job);

/// Logs that the run was stopped and can be resumed, and records "stopped". Call on rank 0; does
/// nothing if the job has no monitor.
void tell_of_stop(Job& job, const std::string& by);

/// If the current exception is an out-of-memory error, rethrows it with a breakdown of this rank's
/// memory.
void throw_with_memory(const Job& job, int rank);

/// Returns this rank's peak memory in bytes. On a GPU it covers the last phase, because the memory
/// account resets the allocator's peak for each phase.
int64_t peak_memory_of_phase(const Job& job, const RankContext& rank_context);

/// Logs the memory by kind of the rank that uses most, at logged steps (monitor.log_memory). Every
/// rank must call.
void log_memory(Job& job, RankContext& rank_context);

/// For a classifier, adds a step's rows to those of the epoch. Must be called on every rank.
void count_rows(Job& job, const parallel::StepResult& result, const data::StepBatch& batch);

/// Resets the epoch's rows. Logs them first, unless an evaluation has already logged them
/// (`is_told`). Must be called on every rank.
void end_epoch(Job& job, bool is_told);

/// Logs the time that training waited for saves, and the size in megabytes of the newest checkpoint
/// and of its tensors. Must be called on rank 0 at the end; does nothing if there were no saves.
void tell_of_saves(const Job& job, double seconds, int64_t saves);

/// Logs and records the use of `all`, the seconds of this attempt so far, by activity. Call on rank
/// 0; does nothing on other ranks.
void tell_of_time(const Job& job, const TimeAccount& time, double all);

/// If the step's gradient norm is a spike, logs a warning and records the event "spike". Must be
/// called on rank 0, after the step.
void tell_of_spike(Job& job, const std::optional<Spikes::Spike>& spike);

/// If a float16 step was skipped, records the event "overflow". If the gradient is exactly 0, logs
/// a warning at the first such step and records the event "zero gradient". Call on rank 0 after the
/// step.
void report_gradient(Job& job, const parallel::StepResult& result);

/// Records the event "compared replicas". Must be called on rank 0, after replicas were found to be
/// equal.
void tell_of_comparison(Job& job, double seconds);

/// If a step was computed twice, logs the outcome and records the event "computed twice". Must be
/// called on rank 0, after the step.
void tell_of_repeat(Job& job, const GuardedStep& step);

}  // namespace lockstep::train
