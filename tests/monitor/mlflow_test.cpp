// Tests of MLflow: settings from the environment, requests to the server, and folders of runs.
#include "monitor/mlflow.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "monitor/mlflow_folder.h"
#include "monitor/one_server.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace mlflow_test {

using Json = nlohmann::json;
using Environment = std::map<std::string, std::string>;

MlflowOptions from(Environment environment) {
  environment.emplace("MLFLOW_TRACKING_URI", "http://tracker:5000");
  return mlflow_options_from_environment({.experiment = "of the run"}, environment);
}

ErrorKind kind_of(const std::function<void()>& body, std::string* text = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (text != nullptr) {
      *text = error.message();
    }
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kInternal;
}

TEST(MlflowOptions, AnAddressIsAServerAndElseAFolder) {
  EXPECT_EQ(from({{"MLFLOW_TRACKING_URI", "https://a/b//"}}).address, "https://a/b");
  EXPECT_EQ(from({{"MLFLOW_TRACKING_URI", "https://a/b//"}}).store, "");
  const std::vector<std::pair<const char*, const char*>> folders{
      {"mlruns", "mlruns"},
      {"./databricks", "./databricks"},
      {"/data/mlruns", "/data/mlruns"},
      {"file:mlruns", "mlruns"},
      {"file:/data/mlruns", "/data/mlruns"},
      {"file:///data/mlruns", "/data/mlruns"}};
  for (const auto& [address, store] : folders) {
    EXPECT_EQ(from({{"MLFLOW_TRACKING_URI", address}}).store, store) << address;
  }
  for (const char* address :
       {"", "file:", "file://host/mlruns", "sqlite:///a.db", "databricks", "http://"}) {
    EXPECT_EQ(kind_of([&] { from({{"MLFLOW_TRACKING_URI", address}}); }), ErrorKind::kConfig)
        << address;
  }
  EXPECT_EQ(kind_of([] { mlflow_options_from_environment({}, {}); }), ErrorKind::kConfig);
}

TEST(MlflowOptions, TheEnvironmentGoesBeforeTheRun) {
  EXPECT_EQ(from({}).experiment, "of the run");
  const MlflowOptions options = from(
      {{"MLFLOW_EXPERIMENT_NAME", "ours"},
       {"MLFLOW_TRACKING_TOKEN", "t"},
       {"MLFLOW_TRACKING_USERNAME", "ann"},
       {"MLFLOW_TRACKING_PASSWORD", "p"},
       {"MLFLOW_TAGS", R"({"team": "speech", "what": ""})"}});
  EXPECT_EQ(options.experiment, "ours");
  EXPECT_EQ(options.token, "t");
  EXPECT_EQ(options.user, "ann");
  EXPECT_EQ(options.password, "p");
  EXPECT_EQ(options.tags, (Environment{{"team", "speech"}, {"what", ""}}));
  EXPECT_EQ(mlflow_variables().size(), 6U);
}

TEST(MlflowOptions, TagsAreAnObjectOfTexts) {
  for (const char* tags :
       {"[]", "null", "5", "\"a\"", R"(["a"])", R"({"a": 1})", R"({"a": "b", "c": null})", "a=b"}) {
    EXPECT_EQ(kind_of([&] { from({{"MLFLOW_TAGS", tags}}); }), ErrorKind::kConfig) << tags;
  }
  EXPECT_TRUE(from({{"MLFLOW_TAGS", "{}"}}).tags.empty());
}

TEST(MlflowNames, AreThoseThatItTakes) {
  EXPECT_EQ(mlflow_name("train/loss"), "train/loss");
  EXPECT_EQ(mlflow_name("mixture/wiki 2.0:a_b-c"), "mixture/wiki 2.0:a_b-c");
  EXPECT_EQ(mlflow_name("f1@5 (ä)"), "f1_5 ____");
  EXPECT_EQ(mlflow_name("a..b/..c"), "a..b/..c");
}

/// MLflow's stores use a name as a path: it must stay within the run's folder and not collide with
/// another name.
TEST(MlflowNames, StayWithinTheRun) {
  const std::filesystem::path run("/run");
  for (const char* name :
       {"../a",
        "..",
        ".",
        "/etc/a",
        "a/../../b",
        "a//b",
        "a/./b",
        "a/",
        "/",
        "",
        "./a",
        "../../x"}) {
    const std::string made = mlflow_name(name);
    const std::filesystem::path place = run / made;
    EXPECT_EQ(place.string(), place.lexically_normal().string()) << name << " as " << made;
    EXPECT_TRUE(place.string().starts_with("/run/")) << name << " as " << made;
    EXPECT_GT(place.string().size(), 5U) << name;
    EXPECT_EQ(mlflow_name(made), made) << name;
  }
}

TEST(MlflowParameters, AreTheLeavesOfTheConfiguration) {
  MlflowOptions options;
  EXPECT_TRUE(mlflow_parameters(options).empty());
  options.configuration_json = Json{
      {"training", {{"seed", 7}, {"bf16", true}, {"optim", "muon"}, {"max_steps", nullptr}}},
      {"data", {{"train", {"a.txt", "b.txt"}}, {"text_field", std::string(7000, 'x')}}},
      {"none", Json::object()}}.dump();
  const auto parameters = mlflow_parameters(options);
  EXPECT_EQ(parameters.at("training.seed"), "7");
  EXPECT_EQ(parameters.at("training.bf16"), "true");
  EXPECT_EQ(parameters.at("training.optim"), "muon");
  EXPECT_EQ(parameters.at("training.max_steps"), "null");
  EXPECT_EQ(parameters.at("data.train"), R"(["a.txt","b.txt"])");
  EXPECT_EQ(parameters.at("data.text_field").size(), 6000U);
  EXPECT_EQ(parameters.size(), 6U);
}

TEST(MlflowEnds, AreOfTheEventsThatEndARun) {
  EXPECT_EQ(mlflow_end("finished"), "FINISHED");
  EXPECT_EQ(mlflow_end("failed"), "FAILED");
  EXPECT_EQ(mlflow_end("stopped"), "KILLED");
  EXPECT_FALSE(mlflow_end("saved"));
  EXPECT_EQ(mlflow_time(1.7e9 + 0.0015), 1'700'000'000'001);
}

/// Tracking server that is initially empty.
struct Tracker {
  TemporaryFolder folder;
  std::map<std::string, std::string> experiments;
  bool others_are_faster = false;  // another client creates the experiment at the same time
  std::string refuses;             // the call that gets `refusal` as its answer
  OneServer::Reply refusal;
  OneServer server{[this](const OneServer::Request& request) { return answer(request); }};

  OneServer::Reply answer(const OneServer::Request& request) {
    const auto is = [&](const char* call) {
      return request.line.find(std::string("/api/2.0/mlflow/") + call) != std::string::npos;
    };
    if (!refuses.empty() && is(refuses.c_str())) {
      return refusal;
    }
    if (is("experiments/get-by-name")) {
      const auto found = experiments.find("of%20the%20run");
      if (found == experiments.end()) {
        return {404, R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})"};
      }
      return {200, Json{{"experiment", {{"experiment_id", found->second}}}}.dump()};
    }
    if (is("experiments/create")) {
      experiments["of%20the%20run"] = "5";
      return others_are_faster
                 ? OneServer::Reply{400, R"({"error_code": "RESOURCE_ALREADY_EXISTS"})"}
                 : OneServer::Reply{200, R"({"experiment_id": "5"})"};
    }
    if (is("runs/create")) {
      return {200, R"({"run": {"info": {"run_id": "r1"}}})"};
    }
    return {};
  }
  /// An empty `call` refuses none.
  void refuse(const std::string& call, const OneServer::Reply& reply = {}) {
    server.between([&] {
      refuses = call;
      refusal = reply;
    });
  }
  MlflowOptions options() const {
    return {
        .folder = folder.path(),
        .address = server.address(),
        .token = "abc",
        .experiment = "of the run",
        .name = "first"};
  }
  std::filesystem::path run_file() const { return folder.path() / "mlflow.json"; }
};

std::string beginning(int parameters = 1) {
  Json params = Json::array();
  for (int i = 0; i < parameters; ++i) {
    params.push_back({{"key", "p" + std::to_string(i)}, {"value", "1"}});
  }
  return Json{{"begin",
               {{"experiment", "of the run"},
                {"name", "first"},
                {"start_time", 1000},
                {"tags", Json::array()},
                {"params", params}}}}
      .dump();
}

std::string metrics(int count, int64_t step = 1) {
  Json list = Json::array();
  for (int i = 0; i < count; ++i) {
    list.push_back(
        {{"key", "m" + std::to_string(i)}, {"value", 1}, {"timestamp", 1}, {"step", step}});
  }
  return Json{{"metrics", list}}.dump();
}

TEST(MlflowSender, MakesTheExperimentAndTheRunAndSendsNoMoreAtOnceThanItTakes) {
  Tracker tracker;
  MlflowSender sender(tracker.options());
  sender.send({beginning(250), metrics(1500, 1), metrics(1000, 2)});
  sender.send({R"({"end": {"status": "FINISHED", "end_time": 9000}})"});
  EXPECT_EQ(tracker.server.requests("experiments/create").size(), 1U);
  const auto made = tracker.server.requests("runs/create");
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].json().at("experiment_id"), "5");
  EXPECT_EQ(made[0].json().at("run_name"), "first");
  EXPECT_EQ(made[0].json().at("start_time"), 1000);
  EXPECT_TRUE(made[0].has("Authorization: Bearer abc"));
  std::vector<size_t> parameters, numbers;
  for (const OneServer::Request& request : tracker.server.requests("runs/log-batch")) {
    const Json body = request.json();
    EXPECT_EQ(body.at("run_id"), "r1");
    (body.contains("params") ? parameters : numbers)
        .push_back(body.at(body.contains("params") ? "params" : "metrics").size());
  }
  EXPECT_EQ(parameters, (std::vector<size_t>{100, 100, 50}));
  EXPECT_EQ(numbers, (std::vector<size_t>{1000, 1000, 500}));
  const auto ends = tracker.server.requests("runs/update");
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].json().at("status"), "FINISHED");
  EXPECT_EQ(ends[0].json().at("end_time"), 9000);
  EXPECT_EQ(read_json(tracker.run_file()).at("run_id"), "r1");
}

TEST(MlflowSender, TakesTheExperimentThatAnotherRunMadeMeanwhile) {
  Tracker tracker;
  tracker.server.between([&] { tracker.others_are_faster = true; });
  MlflowSender(tracker.options()).send({beginning()});
  EXPECT_EQ(tracker.server.requests("experiments/get-by-name").size(), 2U);
  EXPECT_EQ(tracker.server.requests("runs/create").at(0).json().at("experiment_id"), "5");
}

TEST(MlflowSender, GoesOnWithTheRunOfItsFolder) {
  Tracker tracker;
  write_file_atomically(tracker.run_file(), R"({"run_id": "r0"})");
  MlflowSender(tracker.options()).send({beginning(), metrics(1)});
  EXPECT_TRUE(tracker.server.requests("runs/create").empty());
  EXPECT_EQ(
      tracker.server.requests("runs/update").at(0).json(),
      (Json{{"run_id", "r0"}, {"status", "RUNNING"}}));
  const auto sent = tracker.server.requests("runs/log-batch");
  ASSERT_EQ(sent.size(), 1U) << "its parameters it has";
  EXPECT_EQ(sent[0].json().at("run_id"), "r0");
}

/// The run was deleted, or MLFLOW_TRACKING_URI names another server: a new run is created.
TEST(MlflowSender, MakesARunWhereTheServerDoesNotHaveTheOneOfItsFolder) {
  Tracker tracker;
  write_file_atomically(tracker.run_file(), R"({"run_id": "r0"})");
  tracker.refuse(
      "runs/update", {404, R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run r0"})"});
  MlflowSender(tracker.options()).send({beginning(2), metrics(1)});
  EXPECT_EQ(tracker.server.requests("runs/create").size(), 1U);
  const auto sent = tracker.server.requests("runs/log-batch");
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].json().at("params").size(), 2U);
  EXPECT_EQ(sent[1].json().at("run_id"), "r1");
  EXPECT_EQ(read_json(tracker.run_file()).at("run_id"), "r1");
}

TEST(MlflowSender, MetricsOfARunThatIsNotThereAreNotTakenForSent) {
  Tracker tracker;
  tracker.refuse(
      "runs/log-batch",
      {404, R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run r1"})"});
  MlflowSender sender(tracker.options());
  std::string text;
  EXPECT_EQ(kind_of([&] { sender.send({beginning(0), metrics(1)}); }, &text), ErrorKind::kRun);
  EXPECT_EQ(text, "the MLflow server answered 404 to runs/log-batch: no run r1");
}

TEST(MlflowSender, ParametersThatFailedAreSentWithTheNextTry) {
  Tracker tracker;
  tracker.refuse("runs/log-batch", {503, "busy"});
  MlflowSender sender(tracker.options());
  EXPECT_EQ(kind_of([&] { sender.send({beginning(3)}); }), ErrorKind::kEnvironment);
  tracker.refuse("");
  sender.send({beginning(3)});
  EXPECT_EQ(tracker.server.requests("runs/create").size(), 1U);
  const auto sent = tracker.server.requests("runs/log-batch");
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[1].json().at("params").size(), 3U);
  sender.send({beginning(3)});
  EXPECT_EQ(tracker.server.requests("runs/log-batch").size(), 2U) << "once is enough";
}

TEST(MlflowSender, TellsTroubleThatPassesFromARequestThatIsWrong) {
  const std::vector<std::pair<OneServer::Reply, ErrorKind>> answers{
      {{500, R"({"message": "a database is locked"})"}, ErrorKind::kEnvironment},
      {{502, "<html>"}, ErrorKind::kEnvironment},
      {{429, "{}"}, ErrorKind::kEnvironment},
      {{408, ""}, ErrorKind::kEnvironment},
      {{400, R"({"error_code": "INVALID_PARAMETER_VALUE", "message": "bad"})"}, ErrorKind::kRun},
      {{401, "who"}, ErrorKind::kRun},
      {{200, "<html>"}, ErrorKind::kRun}};
  for (const auto& [answer, kind] : answers) {
    Tracker tracker;
    tracker.refuse("experiments/get-by-name", answer);
    std::string text;
    EXPECT_EQ(kind_of([&] { MlflowSender(tracker.options()).send({beginning()}); }, &text), kind)
        << answer.status;
    EXPECT_TRUE(text.starts_with(
        "the MLflow server answered " + std::to_string(answer.status) +
        " to experiments/get-by-name"))
        << text;
    EXPECT_EQ(text.find("of%20the"), std::string::npos) << text;
    EXPECT_FALSE(std::filesystem::exists(tracker.run_file()));
  }
}

TEST(MlflowRun, SendsNumbersThatJsonHasNotAsWords) {
  Tracker tracker;
  {
    MlflowRun run(tracker.options(), /*resumed=*/false);
    run.log(
        {.step = 3,
         .epoch = 0.5,
         .wall_time = 2,
         .values = {
             {"loss", std::nan("")},
             {"grad_norm", std::numeric_limits<double>::infinity()},
             {"eval_loss", -std::numeric_limits<double>::infinity()},
             {"tokens", int64_t{7}}}});
    run.log_event("saved", 3);
    run.log_event("stopped", 4);
    run.finish();
  }
  std::map<std::string, Json> values;
  for (const OneServer::Request& request : tracker.server.requests("runs/log-batch")) {
    for (const Json& metric : request.json().value("metrics", Json::array())) {
      EXPECT_EQ(metric.at("step"), 3);
      EXPECT_EQ(metric.at("timestamp"), 2000);
      values[metric.at("key")] = metric.at("value");
    }
  }
  EXPECT_EQ(values.at("train/epoch"), 0.5);
  EXPECT_EQ(values.at("train/loss"), "NaN");
  EXPECT_EQ(values.at("train/grad_norm"), "Infinity");
  EXPECT_EQ(values.at("eval/loss"), "-Infinity");
  EXPECT_EQ(values.at("train/tokens"), 7);
  const auto ends = tracker.server.requests("runs/update");
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].json().at("status"), "KILLED");
  EXPECT_FALSE(std::filesystem::exists(mlflow_outbox(tracker.folder.path())));
}

TEST(MlflowRun, ANewRunDoesNotGoOnWithTheOneBefore) {
  Tracker tracker;
  write_file_atomically(tracker.run_file(), R"({"run_id": "r0"})");
  {
    MlflowRun(tracker.options(), /*resumed=*/false).finish();
  }
  EXPECT_EQ(tracker.server.requests("runs/create").size(), 1U);
  EXPECT_TRUE(tracker.server.requests("runs/update").empty());
}

/// Folder of runs, and a run in it.
struct Store {
  TemporaryFolder folder;

  MlflowOptions options(const std::string& run = "out") const {
    create_folders(folder.path() / run);
    return {
        .folder = folder.path() / run,
        .store = folder.path() / "mlruns",
        .experiment = "it's ours",
        .name = run,
        .configuration_json = R"({"training": {"seed": 7}})",
        .start_time = 1000};
  }
  std::filesystem::path place(const std::string& run = "out") const {
    const Json kept = read_json(folder.path() / run / "mlflow.json");
    return folder.path() / "mlruns" / kept.at("experiment").get<std::string>() /
           kept.at("run_id").get<std::string>();
  }
  std::string meta(const std::string& run = "out") const {
    return read_file(place(run) / "meta.yaml");
  }
};

TEST(MlflowFolder, HoldsARunAsItsClientReadsIt) {
  const Store store;
  MlflowOptions options = store.options();
  options.tags = {{"team", "speech"}, {"../../escaped", "no"}};
  MlflowFolder run(options, /*resumed=*/false);
  run.log(
      {.step = 3,
       .epoch = 0.5,
       .wall_time = 2.5,
       .values = {{"loss", 0.25}, {"grad_norm", std::nan("")}, {"tokens", int64_t{7}}}});
  run.log({.step = 4, .epoch = 1, .wall_time = 3, .values = {{"loss", 0.125}}});
  EXPECT_EQ(read_file(store.place() / "metrics/train/loss"), "2500 0.25 3\n3000 0.125 4\n");
  EXPECT_EQ(read_file(store.place() / "metrics/train/grad_norm"), "2500 nan 3\n");
  EXPECT_EQ(read_file(store.place() / "metrics/train/tokens"), "2500 7.0 3\n");
  EXPECT_EQ(read_file(store.place() / "metrics/train/epoch"), "2500 0.5 3\n3000 1.0 4\n");
  EXPECT_EQ(read_file(store.place() / "params/training.seed"), "7");
  EXPECT_EQ(read_file(store.place() / "tags/team"), "speech");
  EXPECT_EQ(read_file(store.place() / "tags/mlflow.runName"), "out");
  EXPECT_FALSE(std::filesystem::exists(store.place().parent_path() / "escaped"));
  EXPECT_TRUE(std::filesystem::is_directory(store.place() / "artifacts"));
  EXPECT_NE(store.meta().find("\nstatus: 1\n"), std::string::npos) << store.meta();
  EXPECT_NE(store.meta().find("\nend_time: null\n"), std::string::npos) << store.meta();
  EXPECT_NE(store.meta().find("\nstart_time: 1000000\n"), std::string::npos) << store.meta();
}

TEST(MlflowFolder, TellsHowTheRunEnded) {
  const std::vector<std::pair<const char*, const char*>> ends{
      {"finished", "\nstatus: 3\n"}, {"failed", "\nstatus: 4\n"}, {"stopped", "\nstatus: 5\n"}};
  for (const auto& [event, status] : ends) {
    const Store store;
    MlflowFolder run(store.options(), /*resumed=*/false);
    run.log_event("saved", 8);
    EXPECT_NE(store.meta().find("\nstatus: 1\n"), std::string::npos) << store.meta();
    run.log_event(event, 9);
    EXPECT_NE(store.meta().find(status), std::string::npos) << store.meta();
    EXPECT_NE(store.meta().find("\nend_time: 9000\n"), std::string::npos) << store.meta();
  }
}

TEST(MlflowFolder, AResumedRunKeepsItsNameItsBeginningAndItsCurves) {
  const Store store;
  {
    MlflowFolder run(store.options(), /*resumed=*/false);
    run.log({.step = 1, .wall_time = 1, .values = {{"loss", 4.0}}});
    run.log_event("stopped", 9);
  }
  const std::filesystem::path place = store.place();
  MlflowOptions later = store.options();
  later.name = "another";
  later.start_time = 5000;
  MlflowFolder run(later, /*resumed=*/true);
  run.log({.step = 2, .wall_time = 2, .values = {{"loss", 3.0}}});
  EXPECT_EQ(store.place(), place);
  EXPECT_EQ(read_file(place / "metrics/train/loss"), "1000 4.0 1\n2000 3.0 2\n");
  EXPECT_NE(store.meta().find("\nrun_name: \"out\"\n"), std::string::npos) << store.meta();
  EXPECT_NE(store.meta().find("\nstart_time: 1000000\n"), std::string::npos) << store.meta();
  EXPECT_NE(store.meta().find("\nstatus: 1\n"), std::string::npos) << store.meta();
  std::filesystem::remove_all(place);
  const MlflowFolder anew(later, /*resumed=*/true);
  EXPECT_NE(store.place(), place);
  EXPECT_NE(store.meta().find("\nrun_name: \"another\"\n"), std::string::npos) << store.meta();
}

TEST(MlflowFolder, RunsOfOneExperimentLieBesideEachOther) {
  const Store store;
  const MlflowFolder first(store.options("a"), /*resumed=*/false);
  const MlflowFolder second(store.options("b"), /*resumed=*/false);
  EXPECT_EQ(store.place("a").parent_path(), store.place("b").parent_path());
  EXPECT_NE(store.place("a"), store.place("b"));
}

/// MLflow writes YAML with single quotes and marks deleted experiments.
TEST(MlflowFolder, FindsTheExperimentThatMlflowMadeAndNotOneThatIsDeleted) {
  const Store store;
  const auto make = [&](const char* number, const char* stage) {
    create_folders(store.folder.path() / "mlruns" / number);
    write_file_atomically(
        store.folder.path() / "mlruns" / number / "meta.yaml",
        "experiment_id: '" + std::string(number) + "'\nlifecycle_stage: " + stage +
            "\nname: 'it''s ours'\n");
  };
  make("41", "deleted");
  create_folders(store.folder.path() / "mlruns" / ".trash");
  const MlflowFolder first(store.options("a"), /*resumed=*/false);
  EXPECT_NE(store.place("a").parent_path().filename(), "41");
  std::filesystem::remove_all(store.place("a").parent_path());
  make("42", "active");
  const MlflowFolder second(store.options("b"), /*resumed=*/false);
  EXPECT_EQ(store.place("b").parent_path().filename(), "42");
}

TEST(MlflowFolder, AStoreThatCannotBeMadeIsAnErrorOfTheConfiguration) {
  const Store store;
  MlflowOptions options = store.options();
  write_file_atomically(store.folder.path() / "file", "");
  options.store = store.folder.path() / "file" / "mlruns";
  EXPECT_EQ(kind_of([&] { MlflowFolder(options, false); }), ErrorKind::kConfig);
}

}  // namespace mlflow_test
}  // namespace lockstep::monitor
