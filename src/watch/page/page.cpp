// Implements the web page of runs: authentication, JSON endpoints and Prometheus metrics.
#include "watch/page/page.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <ctime>
#include <limits>
#include <optional>

#include <arpa/inet.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "monitor/checkpoints.h"
#include "monitor/metrics.h"
#include "watch/record/compare.h"
#include "watch/record/downsample.h"
#include "watch/record/run.h"
#include "watch/record/threads.h"

namespace lockstep::watch {
namespace {

constexpr double kLookAgainSeconds = 3;
constexpr int64_t kMostBuckets = 4000, kUsualBuckets = 600;
constexpr size_t kValuesAThread = size_t{1} << 17;  // minimum number of values per thread
constexpr std::string_view kTrace = "trace-";
constexpr size_t kEnding = 5;                             // length of ".json"
constexpr uintmax_t kLargestTrace = uintmax_t{64} << 20;  // bytes
constexpr const char* kJson = "application/json";

/// Returns the host of "name:port", "[::1]:port" or a plain name.
std::string host_of(const std::string& header) {
  if (header.starts_with('[')) {
    return header.substr(1, header.find(']') - 1);
  }
  return header.substr(0, header.find(':'));
}

/// Returns the name of the cookie with the token. Browsers send the cookies of an address to all
/// its ports, so the name contains the port that the browser uses.
std::string cookie_name(const std::string& host_header) {
  const size_t end = host_header.find_last_not_of("0123456789");
  const bool has_port = end != std::string::npos && host_header[end] == ':';
  return "lockstep-" + (has_port ? host_header.substr(end + 1) : "80");
}

/// True for hosts that cannot be used for DNS rebinding, in which a foreign name resolves to this
/// machine.
bool is_safe_host(const std::string& host, const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> number{};
  return host == "localhost" || host == address ||
         ::inet_pton(AF_INET, host.c_str(), number.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), number.data()) == 1;
}

/// Compares two strings in constant time.
bool is_same(std::string_view given, std::string_view secret) {
  unsigned different = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < secret.size(); ++i) {
    const char letter = i < given.size() ? given[i] : '\0';
    different |= static_cast<unsigned>(static_cast<unsigned char>(letter ^ secret[i]));
  }
  return different == 0;
}

/// Returns the cookie with this name, or an empty string.
std::string cookie_of(const std::string& header, const std::string& name) {
  for (size_t at = 0; at < header.size();) {
    const size_t end = std::min(header.find(';', at), header.size());
    const size_t begin = header.find_first_not_of(' ', at);
    const std::string pair = header.substr(begin, end - std::min(begin, end));
    if (pair.starts_with(name + "=")) {
      return pair.substr(name.size() + 1);
    }
    at = end + 1;
  }
  return "";
}

int64_t whole_of(const std::string& text, int64_t otherwise) {
  int64_t value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && rest == text.data() + text.size() ? value : otherwise;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

const char* type_of(std::string_view name) {
  return name.ends_with(".js")    ? "text/javascript; charset=utf-8"
         : name.ends_with(".css") ? "text/css; charset=utf-8"
                                  : "text/html; charset=utf-8";
}

void add_safety(HttpAnswer& answer) {
  answer.headers.insert(
      answer.headers.end(),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
        "'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Cross-Origin-Opener-Policy", "same-origin"},
       {"Cache-Control", "no-store"}});
}

void add_points(std::string& text, const Points& points) {
  text += "[[";
  for (size_t i = 0; i < points.steps.size(); ++i) {
    text += i == 0 ? "" : ",";
    text += std::to_string(points.steps[i]);
  }
  text += "],[";
  for (size_t i = 0; i < points.values.size(); ++i) {
    text += i == 0 ? "" : ",";
    text += monitor::number_text(points.values[i]);
  }
  text += "]]";
}

/// Escapes a label value for Prometheus' text format.
std::string label_text(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') {
      escaped += '\\';
    }
    escaped += letter == '\n' ? ' ' : letter;
  }
  return escaped;
}

double wall_now() {
  return static_cast<double>(std::time(nullptr));
}

/// Returns the steps for which the run's folder contains a trace, ascending.
std::vector<int64_t> traces_of(const std::filesystem::path& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = each.path().filename().string();
    if (name.starts_with(kTrace) && name.ends_with(".json")) {
      const int64_t step =
          whole_of(name.substr(kTrace.size(), name.size() - kTrace.size() - kEnding), -1);
      if (step >= 0) {
        steps.push_back(step);
      }
    }
  }
  std::ranges::sort(steps);
  return steps;
}

/// Returns the unmodified trace file. The page draws it.
HttpAnswer trace_of(const std::filesystem::path& folder, int64_t step) {
  const std::filesystem::path path = folder / fmt::format("{}{}.json", kTrace, step);
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  if (none || size > kLargestTrace) {
    return {
        .status = 404,
        .body = none ? "trace not found\n"
                     : "this trace is too large for the page: open it in ui.perfetto.dev\n"};
  }
  return {.type = kJson, .body = read_file(path)};
}

/// Returns a value that changes whenever details_json() of the run changes.
std::string version_of(const std::filesystem::path& folder, const std::string& end) {
  std::error_code none;
  const auto written = std::filesystem::last_write_time(folder, none).time_since_epoch().count();
  const auto bytes = std::filesystem::file_size(folder / "events.jsonl", none);
  return fmt::format("{} {} {}", written, none ? 0 : bytes, end);
}

/// Reads what is new of a run.
RunSummary look_at(const std::filesystem::path& folder, MetricsReader& metrics) {
  try {
    metrics.look();
    return summarize(folder, wall_now());
  } catch (const Error& error) {
    return unreadable(folder, error);
  }
}

Error no_such_run() {
  return Error(ErrorKind::kConfig, "run not found");
}

}  // namespace

std::string draw_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kEnvironment, "the system provides no random numbers");
  }
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", byte);
  }
  return token;
}

std::string page_address(const std::string& address, int port, const std::string& token) {
  const bool is_six = address.find(':') != std::string::npos;
  return fmt::format(
      "http://{}{}{}:{}/?token={}", is_six ? "[" : "", address, is_six ? "]" : "", port, token);
}

RunsPage::RunsPage(
    std::vector<std::filesystem::path> folders, std::string address, std::string token)
    : folders_(std::move(folders)),
      address_(std::move(address)),
      token_(std::move(token)) {
  look_for_runs();
}

void RunsPage::look_for_runs() {
  if (seconds_now() - looked_ < kLookAgainSeconds) {
    return;
  }
  looked_ = seconds_now();
  for (const std::filesystem::path& folder : folders_) {
    for (std::filesystem::path& found : find_runs(folder)) {
      const bool known =
          std::ranges::any_of(runs_, [&](const Watched& run) { return run.folder == found; });
      if (!known) {
        auto metrics = std::make_unique<MetricsReader>(found / "metrics.jsonl");
        auto ranks = std::make_unique<RankTimes>(found / monitor::kRanksName);
        runs_.push_back({std::move(found), std::move(metrics), std::move(ranks)});
      }
    }
  }
}

RunsPage::Watched& RunsPage::run_of(const std::string& id) {
  const int64_t place = whole_of(id, -1);
  if (place < 0 || place >= std::ssize(runs_)) {
    throw no_such_run();
  }
  Watched& run = runs_[static_cast<size_t>(place)];
  run.metrics->look();
  return run;
}

int RunsPage::refusal(const HttpRequest& request) const {
  const std::string host = request.header("host");
  if (!is_safe_host(host_of(host), address_)) {
    return 403;
  }
  const std::string origin = request.header("origin");
  if (!origin.empty() && origin != "http://" + host) {
    return 403;
  }
  const std::string site = request.header("sec-fetch-site");
  if ((site == "cross-site" || site == "same-site") && request.path != "/") {
    return 403;
  }
  const std::string bearer = request.header("authorization");
  if (bearer.starts_with("Bearer ") && is_same(bearer.substr(7), token_)) {
    return 0;
  }
  const bool knows = is_same(request.parameter("token"), token_) ||
                     is_same(cookie_of(request.header("cookie"), cookie_name(host)), token_);
  return knows ? 0 : 401;
}

HttpAnswer RunsPage::answer(const HttpRequest& request) {
  HttpAnswer answer;
  answer.status = refusal(request);
  if (answer.status == 401) {
    answer.body = "open the address that lockstep monitor printed; it contains a token\n";
  } else if (answer.status == 403) {
    answer.body = "requests with this host or origin are not allowed\n";
  } else if (request.path == "/" && request.query.contains("token")) {
    answer.status = 303;  // redirect, which removes the token from the address bar and the history
    answer.headers = {
        {"Location", "/"},
        {"Set-Cookie",
         fmt::format(
             "{}={}; HttpOnly; SameSite=Strict; Path=/",
             cookie_name(request.header("host")),
             token_)}};
  } else if (const std::string name = request.path == "/" ? "index.html" : request.path.substr(1);
             !page_file(name).empty()) {
    answer = {.type = type_of(name), .body = std::string(page_file(name))};
  } else {
    try {
      answer = answer_data(request);
    } catch (const Error& error) {
      answer = {.status = 404, .body = fmt::format("{}\n", error.what())};
    }
  }
  add_safety(answer);
  return answer;
}

HttpAnswer RunsPage::answer_data(const HttpRequest& request) {
  look_for_runs();
  const std::string& path = request.path;
  if (path == "/api/runs") {
    return {.type = kJson, .body = runs_json()};
  }
  if (path == "/api/run") {
    return {.type = kJson, .body = details_json(run_of(request.parameter("id")))};
  }
  if (path == "/api/ranks") {
    const Watched& run = run_of(request.parameter("id"));
    run.ranks->refresh();
    return {.type = kJson, .body = run.ranks->json()};
  }
  if (path == "/api/live") {
    return live_ranks(request, run_of(request.parameter("id")));
  }
  if (path == "/api/trace") {
    return trace_of(run_of(request.parameter("id")).folder, whole_of(request.parameter("step"), 0));
  }
  if (path == "/api/series") {
    return {.type = kJson, .body = series_json(request)};
  }
  if (path == "/api/difference") {
    const Watched& first = run_of(request.parameter("first"));
    const Watched& second = run_of(request.parameter("second"));
    return {
        .type = kJson,
        .body = to_json(compare_runs(first.folder, second.folder, wall_now())).dump()};
  }
  if (path == "/api/csv") {
    return {.type = "text/csv; charset=utf-8", .body = table_csv(run_of(request.parameter("id")))};
  }
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus()};
  }
  return {.status = 404, .body = "page not found\n"};
}

std::string RunsPage::runs_json() {
  auto list = nlohmann::ordered_json::array();
  for (size_t id = 0; id < runs_.size(); ++id) {
    if (!is_run(runs_[id].folder)) {
      continue;  // the folder was moved or removed
    }
    nlohmann::ordered_json run = to_json(look_at(runs_[id].folder, *runs_[id].metrics));
    run["id"] = id;
    run["name"] = runs_[id].folder.lexically_normal().string();
    run["last_step"] = runs_[id].metrics->last_step();
    run["bad_lines"] = runs_[id].metrics->bad_lines();
    run["partial"] = runs_[id].metrics->is_partial();
    run["version"] = version_of(runs_[id].folder, run.at("end"));
    run["metrics"] = nlohmann::ordered_json::array();
    for (const auto& [name, series] : runs_[id].metrics->series()) {
      run["metrics"].push_back(name);
    }
    list.push_back(std::move(run));
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string RunsPage::details_json(Watched& run) const {
  const std::vector<Event> events = read_events(run.folder);
  nlohmann::json origins = nlohmann::json::object();
  auto told = nlohmann::ordered_json::array();
  for (const Event& event : events) {
    nlohmann::json fields = event.fields;
    if (fields.contains("origins") && fields.at("origins").is_object()) {
      origins = fields.at("origins");
      fields.erase("origins");
    }
    told.push_back(nlohmann::ordered_json(std::move(fields)));
  }
  auto configuration = nlohmann::ordered_json::array();
  for (const auto& [key, value] : configuration_of(run.folder)) {
    configuration.push_back({key, value, origins.value(key, "default")});
  }
  const nlohmann::ordered_json details{
      {"configuration", std::move(configuration)},
      {"events", std::move(told)},
      {"checkpoints", monitor::checkpoints_of(run.folder)},
      {"traces", traces_of(run.folder)},
      {"live", live_ != nullptr && summarize(run.folder, wall_now()).end == End::kRunning}};
  return details.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpAnswer RunsPage::live_ranks(const HttpRequest& request, const Watched& run) const {
  if (live_ == nullptr) {
    return {
        .status = 404,
        .body = "live status is available in lockstep monitor, not in a run's own page\n"};
  }
  const nlohmann::json answer{{"text", live_(run.folder, request.parameter("stacks") == "1")}};
  return {
      .type = kJson, .body = answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

std::string RunsPage::series_json(const HttpRequest& request) {
  const int64_t from = whole_of(request.parameter("from"), 0);
  const int64_t to = whole_of(request.parameter("to"), std::numeric_limits<int64_t>::max());
  const auto buckets = static_cast<size_t>(
      std::clamp<int64_t>(whole_of(request.parameter("points"), kUsualBuckets), 1, kMostBuckets));
  const double percent = static_cast<double>(whole_of(request.parameter("smooth"), 0));
  const double weight = std::clamp(percent / 1000, 0.0, 0.999);
  std::string text = "{";
  for (const std::string& id : words_of(request.parameter("ids"))) {
    const MetricsReader& metrics = *run_of(id).metrics;
    std::vector<std::string> names = words_of(request.parameter("names"));
    std::erase_if(names, [&](const std::string& name) { return metrics.find(name).size() == 0; });
    std::vector<std::string> curves(names.size());
    const size_t values = names.size() * static_cast<size_t>(metrics.last_step());
    in_threads(threads_for(values, kValuesAThread), names.size(), [&](size_t i) {
      curves[i] = nlohmann::json(names[i]).dump() + ":";
      add_points(curves[i], downsample(metrics.find(names[i]), from, to, buckets, weight));
    });
    text += text.size() > 1 ? "," : "";
    text += fmt::format("\"{}\":{{{}}}", whole_of(id, 0), fmt::join(curves, ","));
  }
  return text + "}";
}

std::string RunsPage::table_csv(Watched& run) const {
  run.metrics->refresh();
  const auto& all = run.metrics->series();
  std::map<int64_t, std::vector<std::string>> rows;  // by step
  std::string text = "step";
  size_t column = 0;
  for (const auto& [name, series] : all) {
    text += ",\"";
    for (const char letter : name) {
      text += letter == '"' ? "\"\"" : std::string(1, letter);
    }
    text += '"';
    for (size_t i = 0; i < series.size(); ++i) {
      auto& row = rows[series.steps[i]];
      row.resize(all.size());
      row[column] = std::isfinite(series.values[i]) ? monitor::number_text(series.values[i]) : "";
    }
    ++column;
  }
  text += "\n";
  for (const auto& [step, row] : rows) {
    text += fmt::format("{},{}\n", step, fmt::join(row, ","));
  }
  return text;
}

std::string RunsPage::prometheus() {
  std::string text;
  std::map<std::string, std::string> lines;  // by metric
  for (const Watched& run : runs_) {
    if (!is_run(run.folder)) {
      continue;
    }
    const RunSummary summary = look_at(run.folder, *run.metrics);
    const std::string label =
        fmt::format("{{run=\"{}\"}}", label_text(run.folder.lexically_normal().string()));
    const auto add = [&](const std::string& name, double value) {
      lines[name] += fmt::format("lockstep_{}{} {}\n", name, label, value);
    };
    add("running", summary.end == End::kRunning ? 1 : 0);
    add("failed", summary.end == End::kFailed || summary.end == End::kKilled ? 1 : 0);
    add("step", static_cast<double>(summary.step));
    add("steps", static_cast<double>(summary.total_steps));
    if (summary.goodput) {
      add("goodput", *summary.goodput);
    }
    for (const auto& [name, series] : run.metrics->series()) {
      if (series.size() > 0 && std::isfinite(series.values.back())) {
        std::string plain = name;
        std::ranges::replace_if(
            plain, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
        add(plain, series.values.back());
      }
    }
  }
  for (const auto& [name, samples] : lines) {
    text += fmt::format("# TYPE lockstep_{} gauge\n{}", name, samples);
  }
  return text;
}

}  // namespace lockstep::watch
