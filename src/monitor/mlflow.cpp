// Implements the MLflow tracker: options from environment variables, the REST client and its
// outbox.
#include "monitor/mlflow.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/json_lines.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::json;

// Limits of one log-batch request, from MLflow's documentation.
constexpr size_t kMostMetrics = 1000, kMostParameters = 100;
constexpr size_t kLongestValue = 6000;

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Encodes NaN and infinity like the JSON mapping of protobuf.
Json metric_value(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? Json(value > 0 ? "Infinity" : "-Infinity") : Json(value);
}

Json entries_of(const std::map<std::string, std::string>& values) {
  Json entries = Json::array();
  for (const auto& [key, value] : values) {
    entries.push_back({{"key", mlflow_name(key)}, {"value", value.substr(0, kLongestValue)}});
  }
  return entries;
}

/// Returns the outbox line that creates the run.
std::string beginning(const MlflowOptions& options) {
  return dump(
      {{"begin",
        {{"experiment", options.experiment},
         {"name", options.name},
         {"start_time", mlflow_time(options.start_time)},
         {"tags", entries_of(options.tags)},
         {"params", entries_of(mlflow_parameters(options))}}}});
}

}  // namespace

int64_t mlflow_time(double seconds) {
  return static_cast<int64_t>(std::floor(seconds * 1000));
}

std::string mlflow_name(std::string name) {
  std::ranges::replace_if(
      name,
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view("_-. :/").find(c) == std::string_view::npos;
      },
      '_');
  // MLflow's stores use the name as a path. It must be normalized and relative to the store.
  const std::filesystem::path path(name);
  if (path.is_absolute() || path.lexically_normal().string() != name || name.starts_with("..") ||
      name.ends_with('/') || name == ".") {
    std::ranges::replace(name, '/', '_');
    name = name.starts_with('.') ? "_" + name : name;
  }
  return name.empty() ? "_" : name;
}

std::map<std::string, std::string> mlflow_parameters(const MlflowOptions& options) {
  std::map<std::string, std::string> parameters;
  if (!options.configuration_json.empty()) {
    visit_leaves(
        parse_json(options.configuration_json, "the configuration"),
        [&](const std::string& name, const Json& leaf) {
          const std::string text = leaf.is_string() ? leaf.get<std::string>() : dump(leaf);
          parameters[mlflow_name(name)] = text.substr(0, kLongestValue);
        });
  }
  return parameters;
}

std::optional<std::string> mlflow_end(std::string_view event) {
  const std::map<std::string_view, const char*> ends{
      {"finished", "FINISHED"}, {"failed", "FAILED"}, {"stopped", "KILLED"}};
  const auto end = ends.find(event);
  return end == ends.end() ? std::nullopt : std::optional<std::string>(end->second);
}

const std::vector<const char*>& mlflow_variables() {
  static const std::vector<const char*> names{
      "MLFLOW_TRACKING_URI",
      "MLFLOW_TRACKING_TOKEN",
      "MLFLOW_TRACKING_USERNAME",
      "MLFLOW_TRACKING_PASSWORD",
      "MLFLOW_EXPERIMENT_NAME",
      "MLFLOW_TAGS"};
  return names;
}

MlflowOptions mlflow_options_from_environment(
    MlflowOptions options, const std::map<std::string, std::string>& environment) {
  const auto set = [&](const char* name, std::string& option) {
    if (const auto found = environment.find(name); found != environment.end()) {
      option = found->second;
    }
  };
  set("MLFLOW_TRACKING_URI", options.address);
  set("MLFLOW_TRACKING_TOKEN", options.token);
  set("MLFLOW_TRACKING_USERNAME", options.user);
  set("MLFLOW_TRACKING_PASSWORD", options.password);
  set("MLFLOW_EXPERIMENT_NAME", options.experiment);
  if (const std::string& address = options.address; !is_http_address(address)) {
    // As in MLflow's own client, an address without a scheme is a folder.
    const std::string file = "file:";
    const std::string path = address.starts_with(file) ? address.substr(file.size()) : address;
    const bool has_host = path.starts_with("//") && !path.starts_with("///");
    if (path.empty() || has_host || path.find("://") != std::string::npos ||
        path.starts_with("databricks")) {
      throw Error(
          ErrorKind::kConfig,
          path.empty()
              ? "training.report_to contains mlflow, but MLFLOW_TRACKING_URI names neither a "
                "server nor a folder"
              : fmt::format("MLFLOW_TRACKING_URI={} is neither a server nor a folder", address),
          "start `mlflow server` with a database and set MLFLOW_TRACKING_URI=http://HOST:5000, or "
          "set it to a folder of runs: ./mlruns");
    }
    options.store = path.starts_with("///") ? path.substr(2) : path;
  }
  while (options.address.ends_with('/')) {
    options.address.pop_back();
  }
  std::string tags;
  set("MLFLOW_TAGS", tags);
  if (!tags.empty()) {
    const Json values = parse_json(tags, "MLFLOW_TAGS", ErrorKind::kConfig);
    const auto is_text = [](const Json& value) { return value.is_string(); };
    if (!values.is_object() || !std::all_of(values.begin(), values.end(), is_text)) {
      throw Error(
          ErrorKind::kConfig,
          "MLFLOW_TAGS is not a JSON object of strings",
          R"(write it as {"team": "speech"})");
    }
    for (const auto& [key, value] : values.items()) {
      options.tags[key] = value.get<std::string>();
    }
  }
  return options;
}

std::filesystem::path mlflow_outbox(const std::filesystem::path& folder) {
  return folder / "mlflow-outbox.jsonl";
}

MlflowSender::MlflowSender(const MlflowOptions& options)
    : run_file_(options.folder / "mlflow.json"),
      address_(options.address) {
  if (!options.token.empty()) {
    client_.add_header("Authorization: Bearer " + options.token);
  } else if (!options.user.empty()) {
    client_.set_user(options.user, options.password);
  }
  if (std::filesystem::exists(run_file_)) {
    run_id_ = text_at(parse_json_line(read_file(run_file_)), "run_id");
  }
}

nlohmann::json MlflowSender::ask(
    const std::string& path, const std::string& body, Missing missing) {
  const HttpReply reply = client_.send(address_ + "/api/2.0/mlflow/" + path, body);
  Json answer = parse_json_line(reply.body);
  const bool is_object = answer.is_object();
  if (reply.status == 200 && is_object) {
    return answer;
  }
  const std::string code = is_object ? answer.value("error_code", "") : "";
  if (missing == Missing::kTold &&
      (code == "RESOURCE_DOES_NOT_EXIST" || code == "RESOURCE_ALREADY_EXISTS")) {
    return {{"error_code", code}};
  }
  // Retry after server errors, and after errors of a proxy during startup. Other client errors are
  // permanent.
  const bool passes = reply.status >= 500 || reply.status == 429 || reply.status == 408;
  throw Error(
      passes ? ErrorKind::kEnvironment : ErrorKind::kRun,
      fmt::format(
          "the MLflow server answered {} to {}{}",
          reply.status,
          path.substr(0, path.find('?')),
          is_object ? ": " + answer.value("message", "").substr(0, 300) : ""));
}

std::string MlflowSender::experiment_id(const std::string& name) {
  const std::string asked = "experiments/get-by-name?experiment_name=" + client_.escaped(name);
  Json found = ask(asked, "", Missing::kTold);
  if (found.contains("error_code")) {
    const Json made = ask("experiments/create", dump({{"name", name}}), Missing::kTold);
    if (!made.contains("error_code")) {
      return made.at("experiment_id").get<std::string>();
    }
    found = ask(asked, "");  // another run has created it in the meantime
  }
  return found.at("experiment").at("experiment_id").get<std::string>();
}

void MlflowSender::begin(const nlohmann::json& run) {
  if (!run_id_.empty()) {
    const std::string goes_on = dump({{"run_id", run_id_}, {"status", "RUNNING"}});
    if (ask("runs/update", goes_on, Missing::kTold).contains("error_code")) {
      run_id_.clear();  // the run does not exist on this server, so create a new one
    }
  }
  if (run_id_.empty()) {
    Json request{
        {"experiment_id", experiment_id(run.at("experiment"))},
        {"start_time", run.at("start_time")},
        {"tags", run.at("tags")}};
    if (const std::string name = run.at("name"); !name.empty()) {
      request["run_name"] = name;
    }
    const Json made = ask("runs/create", dump(request));
    run_id_ = made.at("run").at("info").at("run_id").get<std::string>();
    write_file_atomically(run_file_, dump({{"run_id", run_id_}}) + "\n");
    lacks_parameters_ = true;
  }
  if (lacks_parameters_) {
    log_batch("params", run.at("params"));
    lacks_parameters_ = false;
  }
}

void MlflowSender::log_batch(const char* kind, const nlohmann::json& entries) {
  const size_t most = std::string_view(kind) == "params" ? kMostParameters : kMostMetrics;
  for (size_t at = 0; at < entries.size(); at += most) {
    const auto first = entries.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(most, entries.size() - at));
    ask("runs/log-batch", dump({{"run_id", run_id_}, {kind, Json(first, last)}}));
  }
}

void MlflowSender::end(const nlohmann::json& run) {
  ask("runs/update",
      dump({{"run_id", run_id_}, {"status", run.at("status")}, {"end_time", run.at("end_time")}}));
}

void MlflowSender::send(const std::vector<std::string>& lines) {
  Json metrics = Json::array();
  const auto send_metrics = [&] {
    log_batch("metrics", metrics);
    metrics.clear();
  };
  for (const std::string& text : lines) {
    const Json line = parse_json(text, "the outbox");
    if (line.contains("metrics")) {
      metrics.insert(metrics.end(), line.at("metrics").begin(), line.at("metrics").end());
      continue;
    }
    send_metrics();
    if (line.contains("begin")) {
      begin(line.at("begin"));
    } else {
      end(line.at("end"));
    }
  }
  send_metrics();
}

MlflowRun::MlflowRun(const MlflowOptions& options, bool resumed)
    : sender_([&] {
        if (!resumed) {
          std::error_code none;
          std::filesystem::remove(options.folder / "mlflow.json", none);
        }
        return MlflowSender(options);
      }()),
      outbox_(
          mlflow_outbox(options.folder),
          "MLflow",
          resumed,
          [this](const std::vector<std::string>& lines) { sender_.send(lines); },
          [this] { sender_.cancel(); }) {
  outbox_.add(beginning(options));
}

void MlflowRun::log(const Record& record) {
  Json metrics = Json::array();
  const auto add = [&](const std::string& name, double value) {
    metrics.push_back(
        {{"key", mlflow_name(tracker_name(name))},
         {"value", metric_value(value)},
         {"timestamp", mlflow_time(record.wall_time)},
         {"step", record.step}});
  };
  add("epoch", record.epoch);
  for (const auto& [name, number] : record.values) {
    add(name, as_double(number));
  }
  outbox_.add(dump({{"metrics", std::move(metrics)}}));
}

void MlflowRun::log_event(std::string_view name, double wall_time) {
  if (const auto end = mlflow_end(name)) {
    outbox_.add(dump({{"end", {{"status", *end}, {"end_time", mlflow_time(wall_time)}}}}));
  }
}

}  // namespace lockstep::monitor
