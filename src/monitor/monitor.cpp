// Implements the monitor, which aggregates reports and passes records to files and trackers.
#include "monitor/monitor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "monitor/metrics.h"
#include "monitor/spans.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

/// Time window of the rates on the progress line.
constexpr double kWindowSeconds = 20;

/// Appends records to the log_history of a TrainerState.
class History : public MetricsSink {
 public:
  explicit History(TrainerState& state) : state_(state) {}
  void log(const Record& record) override {
    add_to_history(state_.log_history, history_line(record));
  }

 private:
  TrainerState& state_;
};

/// Writes records to standard output, as JSON objects of one line.
class JsonOutput : public MetricsSink {
 public:
  void log(const Record& record) override {
    fmt::print("{}\n", to_json_line(record));
    std::fflush(stdout);
  }
};

double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

}  // namespace

Clocks Clocks::system() {
  using std::chrono::duration;
  return {
      .wall =
          [] {
            return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
          },
      .steady =
          [] {
            return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          }};
}

void Monitor::Sums::add(const StepReport& report) {
  steps += 1;
  tokens += report.tokens;
  samples += report.samples;
  loss += report.loss;
  seconds += report.step_s;
  flops += report.flops;
  for (const auto& [name, value] : report.metrics) {
    auto found = std::ranges::find(metrics, name, &Metric::name);
    if (found == metrics.end()) {
      found = metrics.insert(metrics.end(), Metric{name});
    }
    found->sum += value;
    found->steps += 1;
  }
}

std::vector<std::pair<std::string, double>> Monitor::Sums::metric_means() const {
  std::vector<std::pair<std::string, double>> means;
  for (const Metric& metric : metrics) {
    means.emplace_back(metric.name, metric.sum / static_cast<double>(metric.steps));
  }
  return means;
}

Monitor::Monitor(MonitorOptions options, std::optional<TrainerState> resumed, Clocks clocks)
    : options_(std::move(options)),
      clocks_(std::move(clocks)),
      progress_(options_.progress),
      steps_rate_(kWindowSeconds),
      tokens_rate_(kWindowSeconds),
      flops_rate_(kWindowSeconds),
      data_wait_rate_(kWindowSeconds),
      communication_wait_rate_(kWindowSeconds) {
  if (resumed) {
    state_ = std::move(*resumed);
  }
  state_.max_steps = options_.total_steps;
  state_.logging_steps = static_cast<double>(options_.logging_steps);
  create_folders(options_.output_dir);
  sinks_.push_back(std::make_unique<History>(state_));
  sinks_.push_back(
      std::make_unique<MetricsFile>(options_.output_dir / "metrics.jsonl", state_.global_step));
  if (options_.progress == Progress::Style::kJson) {
    sinks_.push_back(std::make_unique<JsonOutput>());
  }
  events_.emplace(options_.output_dir);
  ranks_.emplace(options_.output_dir, state_.global_step);
  for (auto& tracker : make_trackers(options_, clocks_.wall(), state_.global_step > 0)) {
    sinks_.push_back(std::move(tracker));
  }
  if (!options_.otlp.empty()) {
    spans_ = std::make_unique<Spans>(options_.output_dir, options_.otlp);
  }
  for (WindowedRate* const rate :
       {&steps_rate_, &tokens_rate_, &flops_rate_, &data_wait_rate_, &communication_wait_rate_}) {
    rate->start(0);
  }
}

Monitor::~Monitor() = default;

bool Monitor::step(const StepReport& report) {
  if (run_.steps == 0) {
    begun_ = clocks_.steady() - report.step_s;
  }
  since_log_.add(report);
  run_.add(report);
  state_.global_step = report.step;
  state_.epoch = report.epoch;
  state_.num_input_tokens_seen += report.tokens;
  state_.total_flos += report.flops;
  const double now = run_.seconds;
  steps_rate_.add(now, 1);
  tokens_rate_.add(now, static_cast<double>(report.tokens));
  flops_rate_.add(now, report.flops);
  data_wait_rate_.add(now, report.data_wait_s);
  communication_wait_rate_.add(now, report.communication_wait_s);

  tell_span(report);
  const bool logged = due(report);
  figures_ = figures(report);
  if (logged) {
    log(training_record(report));
    since_log_ = {};
  }
  to_sinks([&](MetricsSink& sink) { sink.log_progress(figures_); });
  progress_.update(figures_, logged, clocks_.steady());
  return logged;
}

void Monitor::tell_span(const StepReport& report) {
  if (!spans_) {
    return;
  }
  Spans::Numbers numbers{
      {"loss", report.loss},
      {"learning_rate", report.learning_rate},
      {"tokens", static_cast<double>(report.tokens)},
      {"data_wait_s", report.data_wait_s},
      {"communication_wait_s", report.communication_wait_s}};
  if (report.grad_norm) {
    numbers.emplace_back("grad_norm", *report.grad_norm);
  }
  if (!try_to_write(
          "spans", [&] { spans_->step(report.step, report.step_s, clocks_.wall(), numbers); })) {
    spans_.reset();
  }
}

bool Monitor::due(const StepReport& report) const {
  if (report.step == 1 && options_.logging_first_step) {
    return true;
  }
  if (options_.logging_strategy == LoggingStrategy::kNo) {
    return false;
  }
  if (report.step == options_.total_steps) {  // a short run has at least one line
    return true;
  }
  return options_.logging_strategy == LoggingStrategy::kEpoch
             ? report.epoch_ends
             : report.step % std::max<int64_t>(1, options_.logging_steps) == 0;
}

Record Monitor::training_record(const StepReport& report) const {
  const auto steps = static_cast<double>(since_log_.steps);
  Record record{
      .kind = Record::Kind::kTraining,
      .step = report.step,
      .epoch = report.epoch,
      .wall_time = clocks_.wall()};
  record.values = {{"loss", since_log_.loss / steps}, {"learning_rate", report.learning_rate}};
  if (report.grad_norm) {
    record.values.emplace_back("grad_norm", *report.grad_norm);
  }
  const auto metrics = since_log_.metric_means();
  record.values.insert(record.values.end(), metrics.begin(), metrics.end());
  record.values.emplace_back("tokens", state_.num_input_tokens_seen);
  record.values.emplace_back(
      "tokens_per_s", per_second(static_cast<double>(since_log_.tokens), since_log_.seconds));
  record.values.emplace_back("step_s", since_log_.seconds / steps);
  if (options_.peak_flops > 0 && since_log_.flops > 0) {
    record.values.emplace_back(
        "peak_share", per_second(since_log_.flops, since_log_.seconds) / options_.peak_flops);
  }
  if (roofline_s_ > 0 && since_log_.seconds > 0) {
    record.values.emplace_back("roofline_share", roofline_s_ * steps / since_log_.seconds);
  }
  record.values.emplace_back("peak_memory_bytes", report.peak_memory_bytes);
  return record;
}

ProgressFigures Monitor::figures(const StepReport& report) const {
  ProgressFigures figures{
      .step = report.step,
      .total_steps = options_.total_steps,
      .loss = since_log_.loss / static_cast<double>(since_log_.steps),
      .learning_rate = report.learning_rate,
      .grad_norm = report.grad_norm,
      .metrics = since_log_.metric_means()};
  figures.tokens_per_s = tokens_rate_.per_second();
  if (options_.peak_flops > 0 && report.flops > 0) {
    figures.peak_share = flops_rate_.per_second() / options_.peak_flops;
  }
  if (report.peak_memory_bytes > 0) {
    figures.memory_bytes = report.peak_memory_bytes;
  }
  figures.data_share = data_wait_rate_.per_second();
  figures.communication_share = communication_wait_rate_.per_second();
  const double rate = steps_rate_.per_second();
  if (rate > 0 && options_.total_steps >= report.step) {
    // Assume that evaluations and checkpoints will take the same fraction of the time as so far.
    const double elapsed = std::max(clocks_.steady() - begun_, run_.seconds);
    const double overhead = run_.seconds > 0 ? elapsed / run_.seconds : 1;
    figures.seconds_left =
        static_cast<double>(options_.total_steps - report.step) / rate * overhead;
  }
  return figures;
}

void Monitor::evaluation(const EvaluationReport& report) {
  Record record{
      .kind = Record::Kind::kEvaluation,
      .step = report.step,
      .epoch = report.epoch,
      .wall_time = clocks_.wall()};
  const auto add = [&](const std::string& name, Number number) {
    record.values.emplace_back(fmt::format("{}_{}{}", report.prefix, name, report.suffix), number);
  };
  add("loss", report.loss);
  for (const auto& [name, value] : report.metrics) {
    add(name, value);
  }
  add("runtime", report.runtime_s);
  add("samples_per_second", per_second(static_cast<double>(report.samples), report.runtime_s));
  add("steps_per_second", per_second(static_cast<double>(report.batches), report.runtime_s));
  try_to_write("the results", [&] {
    write_results(options_.output_dir, report.prefix + report.suffix, record);
  });
  record.values.insert(record.values.end(), report.values.begin(), report.values.end());
  log(record);
}

void Monitor::event(std::string_view name, const nlohmann::ordered_json& fields) {
  const bool written = !events_ || try_to_write("its events", [&] {
    nlohmann::ordered_json all = fields;
    all.emplace("in_steps_s", run_.seconds);
    events_->log(clocks_.wall(), state_.global_step, name, all);
  });
  if (!written) {
    events_.reset();
  }
  to_sinks([&](MetricsSink& sink) { sink.log_event(name, clocks_.wall()); });
}

void Monitor::samples(const std::vector<Sample>& samples) {
  auto list = nlohmann::ordered_json::array();
  for (const Sample& sample : samples) {
    list.push_back({{"prompt", sample.prompt}, {"text", sample.text}});
    const Text text{
        state_.global_step,
        clocks_.wall(),
        fmt::format("samples/{}", list.size()),
        sample.prompt + sample.text};
    to_sinks([&](MetricsSink& sink) { sink.log_text(text); });
  }
  event("samples", {{"samples", std::move(list)}});
}

void Monitor::histogram(const std::string& name, const Histogram& values) {
  to_sinks([&](MetricsSink& sink) {
    sink.log_histogram(state_.global_step, clocks_.wall(), name, values);
  });
}

void Monitor::ranks(const RankShares& shares) {
  if (ranks_ && !try_to_write("the ranks' times", [&] { ranks_->log(shares); })) {
    ranks_.reset();
  }
  to_sinks([&](MetricsSink& sink) { sink.log_ranks(shares, clocks_.wall()); });
}

void Monitor::end_steps() {
  progress_.finish();
}

void Monitor::activity(const std::string& text) {
  progress_.activity(text, clocks_.steady());
}

Record Monitor::summary_record() const {
  const double runtime = run_.steps > 0 ? clocks_.steady() - begun_ : 0;
  Record record{
      .kind = Record::Kind::kSummary,
      .step = state_.global_step,
      .epoch = state_.epoch,
      .wall_time = clocks_.wall()};
  record.values = {
      {"train_runtime", runtime},
      {"train_samples_per_second", per_second(static_cast<double>(run_.samples), runtime)},
      {"train_steps_per_second", per_second(static_cast<double>(run_.steps), runtime)},
      {"total_flos", state_.total_flos}};
  if (run_.steps > 0) {
    record.values.emplace_back("train_loss", run_.loss / static_cast<double>(run_.steps));
  }
  return record;
}

void Monitor::finish() {
  if (finished_) {
    return;
  }
  finished_ = true;
  progress_.finish();
  const Record record = summary_record();
  log(record);
  event("finished", nlohmann::ordered_json::object());
  for (const auto& sink : sinks_) {
    try_to_write("the last metrics", [&] { sink->finish(); });
  }
  if (spans_) {
    try_to_write("the last spans", [&] { spans_->finish(clocks_.wall()); });
  }
  try_to_write("the results", [&] {
    write_results(options_.output_dir, "train", record);
    write_file_atomically(options_.output_dir / "trainer_state.json", to_json(state_));
  });
}

void Monitor::log(const Record& record) {
  to_sinks([&](MetricsSink& sink) { sink.log(record); });
}

void Monitor::to_sinks(const std::function<void(MetricsSink&)>& body) {
  std::erase_if(sinks_, [&](const auto& sink) {
    return !try_to_write("the remaining metrics", [&] { body(*sink); });
  });
}

bool Monitor::try_to_write(const char* what, const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    log_warning("training continues without {}: {}", what, error.what());
    return false;
  }
}

}  // namespace lockstep::monitor
