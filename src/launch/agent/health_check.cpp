// Implements the agent's HTTP health endpoint.
#include "launch/agent/health_check.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "base/format.h"
#include "launch/system/step_file.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostProbes = 64;

/// Returns N of "steps=N", or nullopt if the query does not contain it.
std::optional<double> steps_of(std::string_view query) {
  constexpr std::string_view kKey = "steps=";
  const size_t at = query.find(kKey);
  double number = 0;
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view text = query.substr(at + kKey.size());
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && number > 0 ? std::optional(number) : std::nullopt;
}

/// Returns the target of a request line: "/healthz" for "GET /healthz HTTP/1.1".
std::string_view target_of(std::string_view request) {
  const size_t begin = std::min(request.find(' '), request.size() - 1) + 1;
  const size_t end = std::min(request.find_first_of(" \r\n", begin), request.size());
  return request.substr(begin, end - begin);
}

std::string text_of(const Health::Answer& answer) {
  return fmt::format(
      "HTTP/1.0 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      answer.status == 200 ? "200 OK" : "503 Service Unavailable",
      answer.type,
      answer.body.size(),
      answer.body);
}

}  // namespace

void Health::workers_run(std::vector<std::filesystem::path> step_files) {
  ready_ = true;
  step_files_ = std::move(step_files);
}

void Health::workers_ended() {
  ready_ = false;
  step_files_.clear();
}

Health::Answer Health::getting_on(double most_medians) const {
  nlohmann::ordered_json told{{"workers", step_files_.size()}};
  std::optional<StepMark> last;  // of the worker whose current step started earliest
  for (const std::filesystem::path& file : step_files_) {
    const std::optional<StepMark> mark = read_step(file);
    if (mark && (!last || mark->began < last->began)) {
      last = mark;
    }
  }
  bool late = false;
  if (last) {
    const double age = std::max(0.0, machine_seconds() - last->began);
    late = last->median > 0 && age > most_medians * last->median;
    told["step"] = last->step;
    told["age_s"] = age;
    told["median_s"] = last->median;
  }
  return {late ? 503 : 200, "application/json", told.dump() + "\n"};
}

Health::Answer Health::answer(std::string_view target) const {
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, mark);
  if (path == "/healthz") {
    return getting_on(
        steps_of(target.substr(mark)).value_or(std::numeric_limits<double>::infinity()));
  }
  if (path == "/readyz") {
    return {ready_ ? 200 : 503, "text/plain", ready_ ? "workers run\n" : "waiting for workers\n"};
  }
  return {200, "text/plain", "alive\n"};
}

HealthCheck::HealthCheck(
    EventLoop& loop, const std::string& address, int port, const Health& health)
    : loop_(loop),
      health_(health),
      listener_(listen_on(address, port)),
      port_(bound_port(listener_)) {
  loop_.watch(listener_.get(), [this] { accept(); });
}

HealthCheck::~HealthCheck() {
  loop_.forget(listener_.get());
  for (const Socket& agent : agents_) {
    loop_.forget(agent.get());
  }
}

void HealthCheck::accept() {
  Socket agent(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!agent) {
    return;
  }
  if (agents_.size() >= kMostProbes) {  // the connection that has been silent for longest is closed
    loop_.forget(agents_.front().get());
    agents_.erase(agents_.begin());
  }
  const int descriptor = agent.get();
  agents_.push_back(std::move(agent));
  loop_.watch(descriptor, [this, descriptor] { answer(descriptor); });
}

void HealthCheck::answer(int agent) {
  char request[4096];
  // Read the whole request. Otherwise closing the socket would reset the connection.
  const auto length = ::recv(agent, request, sizeof request, MSG_DONTWAIT);
  if (length > 0) {
    const std::string text =
        text_of(health_.answer(target_of({request, static_cast<size_t>(length)})));
    [[maybe_unused]] const auto sent =
        ::send(agent, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  loop_.forget(agent);
  std::erase_if(agents_, [&](const Socket& each) { return each.get() == agent; });
}

}  // namespace lockstep::launch
