// Creates OpenTelemetry spans of steps and their phases.
#include "monitor/spans.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/rank_status.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::json;

constexpr int kInternalSpan = 1;
/// First phase of a step, and a phase that is not reported.
constexpr std::string_view kFirst = "waiting for data", kReporting = "reporting the step";

Json text_attribute(std::string_view key, std::string_view value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

/// Returns nanoseconds since 1970 for OTLP's JSON. The resolution of a double is 0.2 us.
std::string nanoseconds(double seconds) {
  return std::to_string(std::llround(seconds * 1e6)) + "000";
}

Json span_of(
    const std::string& trace,
    const std::string& id,
    const std::string& parent,
    const std::string& name,
    double begin,
    double end) {
  Json span{
      {"traceId", trace},
      {"spanId", id},
      {"name", name},
      {"kind", kInternalSpan},
      {"startTimeUnixNano", nanoseconds(begin)},
      {"endTimeUnixNano", nanoseconds(end)}};
  if (!parent.empty()) {
    span["parentSpanId"] = parent;
  }
  return span;
}

}  // namespace

std::filesystem::path spans_outbox(const std::filesystem::path& folder) {
  return folder / "otlp-outbox.jsonl";
}

SpanSender::SpanSender(const std::string& address, const std::string& run)
    : address_(address.substr(0, address.find_last_not_of('/') + 1) + "/v1/traces"),
      run_(run) {}

void SpanSender::send(const std::vector<std::string>& lines) {
  Json spans = Json::array();
  for (const std::string& line : lines) {
    const Json some = parse_json(line, "the outbox");
    spans.insert(spans.end(), some.begin(), some.end());
  }
  const Json resource{
      {"attributes",
       {text_attribute("service.name", "lockstep"),
        text_attribute("host.name", host_name()),
        text_attribute("lockstep.run", run_)}}};
  const Json scope{{"scope", {{"name", "lockstep"}}}, {"spans", std::move(spans)}};
  const Json request{
      {"resourceSpans",
       Json::array({{{"resource", resource}, {"scopeSpans", Json::array({scope})}}})}};
  const HttpReply reply =
      client_.send(address_, request.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (reply.status / 100 != 2) {
    // Status codes for which the protocol permits a retry.
    const bool passes = reply.status == 429 || (reply.status >= 502 && reply.status <= 504);
    throw Error(
        passes ? ErrorKind::kEnvironment : ErrorKind::kRun,
        fmt::format("the collector answered {} {}", reply.status, reply.body.substr(0, 200)));
  }
}

Spans::Spans(const std::filesystem::path& folder, const std::string& address)
    : random_(std::random_device()()),
      sender_(address, folder.lexically_normal().string()),
      outbox_(
          spans_outbox(folder),
          "OpenTelemetry",
          /*goes_on=*/true,
          [this](const std::vector<std::string>& lines) { sender_.send(lines); },
          [this] { sender_.cancel(); }) {
  observe_phases([this](std::string_view name) { begin_phase(name); });
}

Spans::~Spans() {
  observe_phases(nullptr);
}

void Spans::begin_phase(std::string_view name) {
  const double now = seconds_now();
  if (!now_.name.empty() && now_.name != kReporting) {
    now_.end = now;
    phases_.push_back(now_);
  }
  now_ = {std::string(name), now};
}

std::string Spans::draw_id() {
  return fmt::format("{:016x}", random_());
}

void Spans::step(int64_t step, double seconds, double wall, const Numbers& numbers) {
  const double now = seconds_now(), offset = wall - now;
  const std::vector<Phase> phases = std::exchange(phases_, {});
  // A step starts when it waits for data. Earlier phases are between two steps.
  const auto first = std::ranges::find(phases.rbegin(), phases.rend(), kFirst, &Phase::name);
  const double began = first != phases.rend() ? first->begin : now - seconds;
  Json spans = Json::array();
  const std::string trace = draw_id() + draw_id(), parent = draw_id();
  Json whole = span_of(trace, parent, "", "step", began + offset, wall);
  whole["attributes"].push_back(
      {{"key", "lockstep.step"}, {"value", {{"intValue", std::to_string(step)}}}});
  for (const auto& [name, number] : numbers) {
    if (std::isfinite(number)) {
      whole["attributes"].push_back(
          {{"key", "lockstep." + name}, {"value", {{"doubleValue", number}}}});
    }
  }
  spans.push_back(std::move(whole));
  for (const Phase& phase : phases) {
    const bool is_within = phase.begin >= began;
    spans.push_back(span_of(
        is_within ? trace : draw_id() + draw_id(),
        draw_id(),
        is_within ? parent : "",
        phase.name,
        phase.begin + offset,
        phase.end + offset));
  }
  outbox_.add(spans.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Spans::finish(double wall) {
  observe_phases(nullptr);
  const double offset = wall - seconds_now();
  begin_phase("");
  Json spans = Json::array();
  for (const Phase& phase : std::exchange(phases_, {})) {
    spans.push_back(span_of(
        draw_id() + draw_id(),
        draw_id(),
        "",
        phase.name,
        phase.begin + offset,
        phase.end + offset));
  }
  outbox_.add(spans.dump(-1, ' ', false, Json::error_handler_t::replace));
  outbox_.finish();
}

}  // namespace lockstep::monitor
