// Implements the control socket of a run: parses requests, replies to status requests and queues
// commands.
#include "watch/control/server.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "base/nearest.h"

namespace lockstep::watch {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kLongestRequest = 4096;  // bytes
constexpr int kPatienceSeconds = 2;       // time to wait for the rest of a request
constexpr int64_t kMostTraces = 100;
constexpr int64_t kLongestRun = int64_t{1} << 40;  // steps; can be represented exactly as a double

/// Short path to the socket of a folder. The path of the folder may exceed 107 bytes, the limit for
/// socket addresses.
class SocketName {
 public:
  explicit SocketName(const std::filesystem::path& folder)
      : folder_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_ < 0) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("cannot open the folder {}: {}", folder.string(), std::strerror(errno)),
          "pass the output_dir of a run");
    }
    address_.sun_family = AF_UNIX;
    const std::string name = fmt::format("/proc/self/fd/{}/{}", folder_, kControlName);
    name.copy(address_.sun_path, sizeof address_.sun_path - 1);
  }
  ~SocketName() { ::close(folder_); }
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t kSize = sizeof(sockaddr_un);

 private:
  int folder_;
  sockaddr_un address_{};
};

void set_patience(int connection, int seconds) {
  const timeval patience{.tv_sec = seconds, .tv_usec = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

/// Reads a line without its newline. If there is no newline, reads until the connection is closed.
std::string receive_line(int connection, size_t longest) {
  std::string text;
  std::array<char, 1024> part{};
  while (text.size() < longest) {
    const ssize_t count = ::recv(connection, part.data(), part.size(), 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return text;
    }
    text.append(part.data(), static_cast<size_t>(count));
    if (const size_t end = text.find('\n'); end != std::string::npos) {
      return text.substr(0, end);
    }
  }
  return text;
}

void send_line(int connection, const json& line) {
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t sent =
      ::send(connection, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool is_our_user(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

Act parse_logging_steps(const nlohmann::json& steps) {
  if (!steps.is_number_integer() || steps.get<int64_t>() < 1 ||
      steps.get<int64_t>() > kLongestRun) {
    throw Error(
        ErrorKind::kConfig,
        "set logging_steps: expected a whole number of steps, 1 or more",
        "for example: lockstep ctl RUN set logging_steps=10");
  }
  return {.kind = Act::Kind::kLogEvery, .steps = steps.get<int64_t>()};
}

Act parse_set(const nlohmann::json& request) {
  if (const auto steps = request.find("logging_steps"); steps != request.end()) {
    return parse_logging_steps(*steps);
  }
  const auto rate = request.find("learning_rate");
  if (rate == request.end() || !rate->is_number() || !std::isfinite(rate->get<double>()) ||
      rate->get<double>() < 0) {
    throw Error(
        ErrorKind::kConfig,
        "set: expected learning_rate=NUMBER, not negative",
        "for example: lockstep ctl RUN set learning_rate=1e-4 --force");
  }
  if (!request.value("force", false)) {
    throw Error(
        ErrorKind::kConfig,
        "changing learning_rate makes the run deviate from its configuration",
        "add --force; the change is recorded in the events and checkpoints, and a resume applies "
        "it at the same step");
  }
  return {.kind = Act::Kind::kSet, .learning_rate = rate->get<double>(), .forced = true};
}

Act parse_log(const nlohmann::json& request) {
  constexpr std::array<const char*, 4> kLevels{"debug", "info", "warning", "error"};
  const std::string level = request.value("level", "");
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (level == kLevels[i]) {
      return {.kind = Act::Kind::kLog, .level = static_cast<int>(i)};
    }
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("'{}' is not a log level", level),
      fmt::format("one of {}", fmt::join(kLevels, ", ")));
}

Act parse_trace(const nlohmann::json& request) {
  const auto steps = request.find("steps");
  if (steps == request.end() || !steps->is_number_integer() || steps->get<int64_t>() < 1 ||
      steps->get<int64_t>() > kMostTraces) {
    throw Error(
        ErrorKind::kConfig, fmt::format("trace: expected a number of steps, 1 to {}", kMostTraces));
  }
  return {.kind = Act::Kind::kTrace, .steps = steps->get<int64_t>()};
}

}  // namespace

Act parse_act(const nlohmann::json& request) {
  const std::vector<std::string> names{"save", "stop", "eval", "log", "set", "trace"};
  try {
    const std::string name = request.value("act", "");
    if (name == "save" || name == "stop" || name == "eval") {
      return {
          .kind = name == "save"   ? Act::Kind::kSave
                  : name == "stop" ? Act::Kind::kStop
                                   : Act::Kind::kEvaluate};
    }
    if (name == "log") {
      return parse_log(request);
    }
    if (name == "set") {
      return parse_set(request);
    }
    if (name == "trace") {
      return parse_trace(request);
    }
    throw Error(
        ErrorKind::kConfig,
        fmt::format("unknown command '{}'.{}", name, did_you_mean(name, names)),
        fmt::format("one of {}", fmt::join(names, ", ")));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kConfig, fmt::format("invalid request: {}", error.what()));
  }
}

Asked::~Asked() {
  if (connection_ >= 0) {
    ::close(connection_);
  }
}

void Asked::answer(bool done, const std::string& text) {
  if (connection_ >= 0) {
    send_line(connection_, {{"ok", done}, {"text", text}});
    ::close(std::exchange(connection_, -1));
  }
}

ControlServer::ControlServer(
    const std::filesystem::path& folder, std::function<void(const Act&)> check)
    : folder_(folder),
      check_(std::move(check)) {
  const SocketName name(folder);
  ::unlink((folder / kControlName).c_str());  // from a killed run; this run has locked the folder
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // The socket file gets the permissions of the socket, so other users can never access it.
  const bool bound = listener_ >= 0 && ::fchmod(listener_, S_IRUSR | S_IWUSR) == 0 &&
                     ::bind(listener_, name.address(), SocketName::kSize) == 0;
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (!bound || ::listen(listener_, 16) != 0 || wake_ < 0) {
    const Error error = system_error(ErrorKind::kEnvironment, "listen on", folder / kControlName);
    ::close(listener_);
    ::close(wake_);
    throw error;
  }
  thread_ = std::thread([this] { listen(); });
}

ControlServer::~ControlServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  thread_.join();
  ::unlink((folder_ / kControlName).c_str());
  ::close(listener_);
  ::close(wake_);
}

void ControlServer::publish(json status) {
  const std::scoped_lock lock(mutex_);
  status_ = std::move(status);
  published_ = seconds_now();
}

std::vector<Asked> ControlServer::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(asked_, {});
}

void ControlServer::listen() {
  ::pthread_setname_np(::pthread_self(), "lockstep-ctl");
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{listener_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    if (watched[1].revents != 0) {
      return;
    }
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) {
      hear(connection);
    }
  }
}

std::string ControlServer::status_line() {
  const std::scoped_lock lock(mutex_);
  json line{{"ok", true}, {"text", ""}};
  line.update(status_);
  line["age_s"] = published_ > 0 ? seconds_now() - published_ : 0;
  return line.dump();
}

void ControlServer::hear(int connection) {
  Asked asked({}, connection);  // closes the connection
  if (!is_our_user(connection)) {
    return;
  }
  set_patience(connection, kPatienceSeconds);
  const std::string text = receive_line(connection, kLongestRequest);
  try {
    const json request = parse_json_line(text);
    if (request.is_null()) {
      throw Error(ErrorKind::kConfig, "a request must be one line, a JSON object");
    }
    if (request.contains("act") && request.at("act") == "status") {
      send_line(connection, json::parse(status_line()));
      return;
    }
    asked.act = parse_act(request);
    check_(asked.act);
    const std::scoped_lock lock(mutex_);
    asked_.push_back(std::move(asked));
  } catch (const Error& error) {
    asked.answer(false, error.what());
  }
}

json ask_run(const std::filesystem::path& folder, const json& request) {
  const SocketName name(folder);
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Asked closes({}, connection);
  if (connection < 0 || ::connect(connection, name.address(), SocketName::kSize) != 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("no run is listening in {}: {}", folder.string(), std::strerror(errno)),
        "use the machine and user of the run, and check that it does not have "
        "monitor.control=false; `lockstep runs` lists active runs");
  }
  send_line(connection, request);
  const std::string text = receive_line(connection, size_t{1} << 20);
  json answer = parse_json_line(text);
  if (answer.is_null()) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("the run in {} ended before it answered", folder.string()),
        "`lockstep runs` shows the reason");
  }
  return answer;
}

}  // namespace lockstep::watch
