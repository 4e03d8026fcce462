// Implements a single-threaded HTTP/1.1 server with poll().
#include "watch/page/http_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace lockstep::watch {
namespace {

constexpr size_t kLongestRequestHead = size_t{16} << 10;  // bytes
constexpr size_t kMostConnections = 64;

int hex_digit(char letter) {
  const char low = static_cast<char>(letter | 0x20);
  return is_digit(letter) ? letter - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/// Decodes %41 and + in a query. Returns nullopt if a % is not followed by two hexadecimal digits.
std::optional<std::string> decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      result += ' ';
    } else if (text[i] != '%') {
      result += text[i];
    } else if (i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      result += static_cast<char>(16 * hex_digit(text[i + 1]) + hex_digit(text[i + 2]));
      i += 2;
    } else {
      return std::nullopt;
    }
  }
  return result;
}

bool parse_target(std::string_view target, HttpRequest& request) {
  const size_t mark = std::min(target.find('?'), target.size());
  const auto path = decoded(target.substr(0, mark));
  if (!path || !path->starts_with('/')) {
    return false;
  }
  request.path = *path;
  std::string_view query = target.substr(std::min(mark + 1, target.size()));
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const auto name = decoded(pair.substr(0, equals));
    const auto value = decoded(pair.substr(std::min(equals + 1, pair.size())));
    if (!name || !value) {
      return false;
    }
    request.query[*name] = *value;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

std::string text_of(const HttpAnswer& answer) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
      answer.status,
      reason_of(answer.status),
      answer.type,
      answer.body.size());
  for (const auto& [name, value] : answer.headers) {
    text += fmt::format("{}: {}\r\n", name, value);
  }
  return text + "\r\n" + answer.body;
}

int listen_at(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::string reason = problem != 0 ? ::gai_strerror(problem) : "";
  int listener = -1;
  for (const addrinfo* at = found; at != nullptr && listener < 0; at = at->ai_next) {
    const int one = 1;
    listener = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener >= 0 &&
        (::bind(listener, at->ai_addr, at->ai_addrlen) != 0 || ::listen(listener, 64) != 0)) {
      reason = std::strerror(errno);
      ::close(std::exchange(listener, -1));
    }
  }
  ::freeaddrinfo(found);
  if (listener < 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot listen on {} port {}: {}", address, port, reason),
        "choose another --address or --port; port 0 selects a free one");
  }
  return listener;
}

int port_of(int listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(
      bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                  : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

}  // namespace

struct HttpServer::Connection {
  explicit Connection(int descriptor) : descriptor(descriptor) {}
  Connection(Connection&& other) = delete;
  ~Connection() { ::close(descriptor); }

  int descriptor;
  std::string received{}, to_send{};
  size_t sent = 0;
  double since = seconds_now();  // when it was accepted, or last accepted a part of the answer
  bool ends = false;
};

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string HttpRequest::parameter(const std::string& name, const std::string& otherwise) const {
  const auto found = query.find(name);
  return found == query.end() ? otherwise : found->second;
}

int parse_request(std::string_view text, HttpRequest& request) {
  const size_t end = text.find("\r\n");
  const std::string_view first = text.substr(0, end);
  const size_t space = first.find(' ');
  const size_t second = first.rfind(' ');
  if (end == std::string_view::npos || space == std::string_view::npos || second <= space ||
      !first.substr(second + 1).starts_with("HTTP/1.")) {
    return 400;
  }
  if (first.substr(0, space) != "GET") {
    return 405;
  }
  if (!parse_target(first.substr(space + 1, second - space - 1), request)) {
    return 400;
  }
  text.remove_prefix(end + 2);
  for (size_t line_end = text.find("\r\n"); line_end != std::string_view::npos && line_end > 0;
       line_end = text.find("\r\n")) {
    const std::string_view line = text.substr(0, line_end);
    text.remove_prefix(line_end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return 400;
    }
    const std::string name = lower_case(std::string(line.substr(0, colon)));
    // Reject requests that contain these headers twice: one value could be checked and the other
    // one used.
    if (!request.headers.emplace(name, trimmed(line.substr(colon + 1))).second &&
        (name == "host" || name == "origin" || name == "authorization")) {
      return 400;
    }
  }
  return 0;
}

HttpServer::HttpServer(const std::string& address, int port, Handler handler, double patience)
    : handler_(std::move(handler)),
      patience_(patience),
      listener_(listen_at(address, port)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      port_(port_of(listener_)) {}

HttpServer::~HttpServer() {
  ::close(listener_);
  ::close(wake_);
}

void HttpServer::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void HttpServer::run() {
  for (;;) {
    std::vector<pollfd> watched{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [descriptor, connection] : connections_) {
      const short wanted = connection.to_send.empty() ? POLLIN : POLLOUT;
      watched.push_back({descriptor, wanted, 0});
    }
    if (::poll(watched.data(), watched.size(), 1000) < 0 && errno != EINTR) {
      return;
    }
    if (watched[0].revents != 0) {
      return;
    }
    for (size_t i = 2; i < watched.size(); ++i) {
      if (watched[i].revents != 0) {
        advance(connections_.at(watched[i].fd));
      }
    }
    const double now = seconds_now();
    std::erase_if(connections_, [&](const auto& each) {
      return each.second.ends || now - each.second.since > patience_;
    });
    if (watched[1].revents != 0) {
      accept();
    }
  }
}

void HttpServer::accept() {
  const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) {
    return;
  }
  if (connections_.size() >= kMostConnections && !make_room()) {
    ::close(descriptor);
    return;
  }
  connections_.try_emplace(descriptor, descriptor);
}

/// Drops the oldest connection without a complete request. Returns false if there is none.
bool HttpServer::make_room() {
  auto oldest = connections_.end();
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    if (at->second.to_send.empty() &&
        (oldest == connections_.end() || at->second.since < oldest->second.since)) {
      oldest = at;
    }
  }
  if (oldest == connections_.end()) {
    return false;
  }
  connections_.erase(oldest);
  return true;
}

void HttpServer::advance(Connection& connection) {
  if (connection.to_send.empty()) {
    std::array<char, 8192> part{};
    const ssize_t count = ::recv(connection.descriptor, part.data(), part.size(), 0);
    if (count <= 0) {
      connection.ends = count == 0 || (errno != EAGAIN && errno != EINTR);
      return;
    }
    connection.received.append(part.data(), static_cast<size_t>(count));
    if (connection.received.find("\r\n\r\n") != std::string::npos ||
        connection.received.size() > kLongestRequestHead) {
      answer(connection);
    }
    return;
  }
  const ssize_t count = ::send(
      connection.descriptor,
      connection.to_send.data() + connection.sent,
      connection.to_send.size() - connection.sent,
      MSG_NOSIGNAL);
  if (count < 0) {
    connection.ends = errno != EAGAIN && errno != EINTR;
    return;
  }
  connection.since = seconds_now();
  connection.sent += static_cast<size_t>(count);
  connection.ends = connection.sent == connection.to_send.size();
}

void HttpServer::answer(Connection& connection) {
  HttpRequest request;
  HttpAnswer answer;
  answer.status = connection.received.size() > kLongestRequestHead
                      ? 431
                      : parse_request(connection.received, request);
  if (answer.status == 0) {
    try {
      answer = handler_(request);
    } catch (const std::exception& error) {
      answer = {.status = 500, .body = fmt::format("{}\n", error.what())};
    }
  } else {
    answer.body = fmt::format("{}\n", reason_of(answer.status));
  }
  connection.to_send = text_of(answer);
  connection.since = seconds_now();
}

}  // namespace lockstep::watch
