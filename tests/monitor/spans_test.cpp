// Tests of the spans that an OpenTelemetry collector receives.
#include "monitor/spans.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/rank_status.h"
#include "monitor/one_server.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace spans_test {

using Json = nlohmann::json;

std::vector<Json> spans_of(OneServer& server) {
  std::vector<Json> spans;
  for (const OneServer::Request& request : server.requests("POST /v1/traces ")) {
    const Json body = request.json();
    for (const Json& span : body.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans")) {
      spans.push_back(span);
    }
  }
  return spans;
}

TEST(Spans, AStepHasItsPhasesBelowItAndWhatLiesBetweenStepsIsATraceOfItsOwn) {
  const TemporaryFolder folder;
  OneServer server;
  {
    Spans spans(folder.path(), server.address() + "//");
    begin_phase("evaluating");
    begin_phase("waiting for data");
    begin_phase("forward and backward");
    begin_phase("reporting the step");
    spans.step(5, 1.0, 1.7e9, {{"loss", 2.5}, {"grad_norm", std::nan("")}});
    begin_phase("saving");
    spans.finish(1.7e9 + 1);
  }
  const std::vector<Json> spans = spans_of(server);
  ASSERT_EQ(spans.size(), 5U) << Json(spans).dump(1);
  const Json& step = spans[0];
  EXPECT_EQ(step.at("name"), "step");
  EXPECT_EQ(step.at("traceId").get<std::string>().size(), 32U);
  EXPECT_EQ(step.at("spanId").get<std::string>().size(), 16U);
  EXPECT_FALSE(step.contains("parentSpanId"));
  EXPECT_EQ(step.at("endTimeUnixNano"), "1700000000000000000");
  ASSERT_EQ(step.at("attributes").size(), 2U) << "NaN is no number of JSON's";
  EXPECT_EQ(step.at("attributes").at(0).at("value").at("intValue"), "5");
  EXPECT_EQ(step.at("attributes").at(1).at("key"), "lockstep.loss");
  EXPECT_EQ(step.at("attributes").at(1).at("value").at("doubleValue"), 2.5);
  EXPECT_EQ(spans[1].at("name"), "evaluating");
  EXPECT_FALSE(spans[1].contains("parentSpanId"));
  EXPECT_NE(spans[1].at("traceId"), step.at("traceId"));
  for (const size_t i : {2U, 3U}) {
    EXPECT_EQ(spans[i].at("traceId"), step.at("traceId"));
    EXPECT_EQ(spans[i].at("parentSpanId"), step.at("spanId"));
  }
  EXPECT_EQ(spans[2].at("name"), "waiting for data");
  EXPECT_EQ(spans[2].at("startTimeUnixNano"), step.at("startTimeUnixNano"));
  EXPECT_EQ(spans[3].at("name"), "forward and backward");
  EXPECT_EQ(spans[4].at("name"), "saving");
  EXPECT_FALSE(spans[4].contains("parentSpanId"));
  EXPECT_FALSE(std::filesystem::exists(spans_outbox(folder.path())));
}

TEST(Spans, AStepWithoutAWaitForDataIsAsLongAsItSays) {
  const TemporaryFolder folder;
  OneServer server;
  Spans spans(folder.path(), server.address());
  spans.step(1, 2.0, 1.7e9, {});
  spans.finish(1.7e9);
  ASSERT_FALSE(spans_of(server).empty());
  const Json step = spans_of(server)[0];
  const double nanoseconds = std::stod(step.at("endTimeUnixNano").get<std::string>()) -
                             std::stod(step.at("startTimeUnixNano").get<std::string>());
  EXPECT_NEAR(nanoseconds, 2e9, 1e4);
}

TEST(SpanSender, NamesTheRunAndSendsLinesTogether) {
  OneServer server;
  SpanSender sender(server.address(), "runs/a");
  sender.send({R"([{"name": "a"}, {"name": "b"}])", "[]", R"([{"name": "c"}])"});
  ASSERT_EQ(server.requests().size(), 1U);
  EXPECT_EQ(spans_of(server).size(), 3U);
  const Json resource = server.requests()[0].json().at("resourceSpans").at(0).at("resource");
  std::map<std::string, Json> attributes;
  for (const Json& attribute : resource.at("attributes")) {
    attributes[attribute.at("key")] = attribute.at("value").at("stringValue");
  }
  EXPECT_EQ(attributes.at("service.name"), "lockstep");
  EXPECT_EQ(attributes.at("lockstep.run"), "runs/a");
  EXPECT_TRUE(attributes.contains("host.name"));
}

TEST(SpanSender, TriesAgainWhatTheProtocolCallsRetryable) {
  const std::vector<std::pair<int, ErrorKind>> answers{
      {429, ErrorKind::kEnvironment},
      {502, ErrorKind::kEnvironment},
      {503, ErrorKind::kEnvironment},
      {504, ErrorKind::kEnvironment},
      {400, ErrorKind::kRun},
      {404, ErrorKind::kRun},
      {500, ErrorKind::kRun},
      {505, ErrorKind::kRun}};
  for (const auto& [status, kind] : answers) {
    OneServer server(
        [status = status](const OneServer::Request&) { return OneServer::Reply{status, "no"}; });
    try {
      SpanSender(server.address(), "a").send({"[]"});
      ADD_FAILURE() << status;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << status;
      EXPECT_EQ(error.message(), "the collector answered " + std::to_string(status) + " no");
    }
  }
}

}  // namespace spans_test
}  // namespace lockstep::monitor
