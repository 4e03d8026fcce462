// Requests to servers of trackers, by libcurl, which is opened when it is needed: no program
// depends on it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace lockstep::monitor {

struct HttpReply {
  int status = 0;
  std::string body{};
};

/// For one thread, but for cancel().
class HttpClient {
 public:
  /// Throws Error(kEnvironment) where this machine has no libcurl.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Name and password of every request, as HTTP's basic authentication.
  void set_user(const std::string& name, const std::string& password);
  /// The file of those that are trusted, instead of the machine's; empty: the machine's.
  void set_certificates(const std::string& file);
  /// A header of every request: "Authorization: Bearer ...".
  void add_header(const std::string& line) { headers_.push_back(line); }

  /// GETs where `body` is empty, else POSTs it as JSON. `url`: http:// or https://. Redirects are
  /// not followed. Throws Error(kEnvironment) that names the host where it does not answer within
  /// 20 s, or the request is cancelled.
  HttpReply send(const std::string& url, const std::string& body);
  /// The request that goes on ends soon, and so do all later ones.
  void cancel() { cancelled_ = true; }

  /// For a part of a URL.
  std::string escaped(const std::string& text) const;

 private:
  void* handle_ = nullptr;
  std::vector<std::string> headers_{"Content-Type: application/json"};
  std::atomic<bool> cancelled_{false};
};

/// Whether a text is an address that send() takes.
bool is_http_address(const std::string& text);

}  // namespace lockstep::monitor
