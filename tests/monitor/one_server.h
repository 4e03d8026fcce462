// Local HTTP server for tracker tests: answers as the test specifies and records the requests.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::monitor {

class OneServer {
 public:
  struct Request {
    std::string line;     // "POST /a?b=c HTTP/1.1"
    std::string headers;  // unmodified
    std::string body;

    nlohmann::json json() const { return nlohmann::json::parse(body); }
    bool has(const std::string& text) const { return headers.find(text) != std::string::npos; }
  };
  struct Reply {
    int status = 200;
    std::string body = "{}";
    std::string header = {};  // additional header, such as "Location: /b"
  };
  /// Called from the server's thread.
  using Answer = std::function<Reply(const Request& request)>;

  OneServer() : OneServer([](const Request&) { return Reply{}; }) {}
  explicit OneServer(Answer answer)
      : answer_(std::move(answer)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    auto* const name = reinterpret_cast<sockaddr*>(&place);
    if (::bind(listener_, name, size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, name, &size) != 0) {
      throw std::runtime_error("no port of 127.0.0.1");
    }
    port_ = ::ntohs(place.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~OneServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  OneServer(const OneServer&) = delete;
  OneServer& operator=(const OneServer&) = delete;

  /// Address without a scheme: "127.0.0.1:4711".
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string address() const { return "http://" + host(); }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  /// Runs `body` between two requests, to change the answers.
  void between(const std::function<void()>& body) {
    const std::lock_guard lock(mutex_);
    body();
  }
  /// Returns the requests whose first line contains `text`.
  std::vector<Request> requests(const std::string& text) {
    std::vector<Request> found;
    for (const Request& request : requests()) {
      if (request.line.find(text) != std::string::npos) {
        found.push_back(request);
      }
    }
    return found;
  }

 private:
  void run() {
    for (int client = accept(); client >= 0; client = accept()) {
      const Request request = read(client);
      Reply reply;
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
        reply = answer_(request);
      }
      const std::string header = reply.header.empty() ? "" : reply.header + "\r\n";
      send(
          client,
          "HTTP/1.1 " + std::to_string(reply.status) + " so\r\nConnection: close\r\n" + header +
              "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body);
      ::close(client);
    }
  }
  int accept() { return ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); }
  static void send(int client, const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(client, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) {
        return;
      }
      sent += static_cast<size_t>(count);
    }
  }
  /// Reads more data into `text`; returns false at the end.
  static bool read_more(int client, std::string& text) {
    char some[4096];
    const ssize_t count = ::recv(client, some, sizeof some, 0);
    text.append(some, static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return count > 0;
  }
  static Request read(int client) {
    std::string text;
    size_t end = std::string::npos;
    while ((end = text.find("\r\n\r\n")) == std::string::npos && read_more(client, text)) {
    }
    if (end == std::string::npos) {
      return {text, "", ""};
    }
    const size_t first = text.find("\r\n");
    Request request{text.substr(0, first), text.substr(first + 2, end - first), ""};
    if (request.has("100-continue")) {
      send(client, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    const size_t at = request.headers.find("Content-Length: ");
    const size_t length =
        at == std::string::npos ? 0 : std::strtoul(request.headers.c_str() + at + 16, nullptr, 10);
    while (text.size() < end + 4 + length && read_more(client, text)) {
    }
    request.body = text.substr(end + 4, length);
    return request;
  }

  const Answer answer_;
  const int listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

/// Returns an address on which no server listens.
inline std::string nobodys_address() {
  const OneServer server;
  return server.address();
}

}  // namespace lockstep::monitor
