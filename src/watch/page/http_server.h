// A small HTTP/1.1 server for one user on one machine: GET alone, small requests, one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::watch {

struct HttpRequest {
  std::string path;                            // decoded, without the query
  std::map<std::string, std::string> query;    // decoded; of a name that comes twice the last
  std::map<std::string, std::string> headers;  // names in lower case

  /// The value, or "".
  std::string header(const std::string& name) const;
  std::string parameter(const std::string& name, const std::string& otherwise = "") const;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// Parses a request's text up to its empty line. Returns the status of what is wrong with it, 0
/// where nothing is.
int parse_request(std::string_view text, HttpRequest& request);

/// Answers on one address. A connection serves one request and is closed; requests of more than 16
/// KiB, connections beyond 64 and clients that take more than 10 s to ask or to listen are dropped.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  /// Listens on a numeric or named `address` and `port` (0: a free one). The handler is called by
  /// the thread of run(), one request at a time; what it throws is answered with 500. Throws Error
  /// (environment) where the address cannot be had.
  HttpServer(const std::string& address, int port, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  /// Serves until stop(), which any thread and a signal's handler may call.
  void run();
  void stop();

 private:
  struct Connection;
  void accept();
  void advance(Connection& connection);
  void answer(Connection& connection);

  Handler handler_;
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::map<int, Connection> connections_;  // by descriptor
};

}  // namespace lockstep::watch
