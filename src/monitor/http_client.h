// HTTP client for the servers of trackers. Loads libcurl at run time, so that no program links to
// it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace lockstep::monitor {

struct HttpReply {
  int status = 0;
  std::string body{};
};

/// HTTP client. Not thread-safe, except for cancel().
class HttpClient {
 public:
  /// Throws Error (environment) if libcurl is not installed.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sets user name and password for HTTP basic authentication.
  void set_user(const std::string& name, const std::string& password);
  /// Sets the file of trusted CA certificates. Empty: the system's default.
  void set_certificates(const std::string& file);
  /// Adds a header to every request, such as "Authorization: Bearer ...".
  void add_header(const std::string& line) { headers_.push_back(line); }

  /// Sends a GET request if `body` is empty, otherwise a POST request with `body` as JSON. `url`
  /// must start with http:// or https://. Redirects are not followed. Throws Error (environment)
  /// that names the host if it does not answer within 20 s or the request is cancelled.
  HttpReply send(const std::string& url, const std::string& body);
  /// Cancels the current request and all later ones.
  void cancel() { cancelled_ = true; }

  /// Returns `text` percent-encoded for use in a URL.
  std::string escaped(const std::string& text) const;

 private:
  void* handle_ = nullptr;
  std::vector<std::string> headers_{"Content-Type: application/json"};
  std::atomic<bool> cancelled_{false};
};

/// Returns true if send() accepts the address.
bool is_http_address(const std::string& text);

}  // namespace lockstep::monitor
