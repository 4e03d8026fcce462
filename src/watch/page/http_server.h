// Small HTTP/1.1 server for one user on one machine. It supports only GET and small requests, and
// has a single thread.
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
  std::map<std::string, std::string> query;    // decoded; if a name is repeated, its last value
  std::map<std::string, std::string> headers;  // names in lowercase

  /// Returns the value of a header, or an empty string.
  std::string header(const std::string& name) const;
  std::string parameter(const std::string& name, const std::string& otherwise = "") const;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// Parses a request up to its empty line. Returns 0, or an HTTP status if the request is invalid.
int parse_request(std::string_view text, HttpRequest& request);

/// HTTP server on one address. Each connection serves one request and is then closed. Requests of
/// more than 16 KiB, connections beyond 64, and clients that are idle for more than 10 s are
/// dropped.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  static constexpr double kPatience = 10;  // seconds

  /// Listens on a numeric or named `address` and `port` (0: any free port). run() calls the handler
  /// for one request at a time; exceptions become status 500. Throws Error (environment) if the
  /// address is not available.
  HttpServer(const std::string& address, int port, Handler handler, double patience = kPatience);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  /// Serves requests until stop() is called, which is allowed on any thread and in a signal
  /// handler.
  void run();
  void stop();

 private:
  struct Connection;
  void accept();
  bool make_room();
  void advance(Connection& connection);
  void answer(Connection& connection);

  Handler handler_;
  double patience_;
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::map<int, Connection> connections_;  // by descriptor
};

}  // namespace lockstep::watch
