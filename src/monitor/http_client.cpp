// Implements an HTTP client with libcurl, which is loaded dynamically.
#include "monitor/http_client.h"

#include <memory>
#include <type_traits>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::monitor {
namespace {

constexpr long kConnectSeconds = 5, kSeconds = 20;
constexpr size_t kLongestReply = size_t{1} << 20;

/// Functions of libcurl.so.4 to load.
#define LOCKSTEP_CURL_FUNCTIONS(DO) \
  DO(curl_global_init)              \
  DO(curl_easy_init)                \
  DO(curl_easy_setopt)              \
  DO(curl_easy_getinfo)             \
  DO(curl_easy_perform)             \
  DO(curl_easy_cleanup)             \
  DO(curl_easy_strerror)            \
  DO(curl_easy_escape)              \
  DO(curl_free)                     \
  DO(curl_slist_append)             \
  DO(curl_slist_free_all)

// curl.h defines macros with these names.
#undef curl_easy_setopt
#undef curl_easy_getinfo

struct CurlLibrary {
#define LOCKSTEP_CURL(name) decltype(&::name) name = nullptr;
  LOCKSTEP_CURL_FUNCTIONS(LOCKSTEP_CURL)
#undef LOCKSTEP_CURL
};

std::unique_ptr<const CurlLibrary> open_curl() {
  void* handle = nullptr;
  for (const char* const name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    handle = handle != nullptr ? handle : ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    return nullptr;
  }
  auto found = std::make_unique<CurlLibrary>();
  bool whole = true;
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    whole = whole && function != nullptr;
  };
#define LOCKSTEP_CURL(name) take(found->name, #name);
  LOCKSTEP_CURL_FUNCTIONS(LOCKSTEP_CURL)
#undef LOCKSTEP_CURL
  if (!whole || found->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return nullptr;
  }
  return found;
}

const CurlLibrary& curl() {
  static const std::unique_ptr<const CurlLibrary> library = open_curl();
  if (library == nullptr) {
    throw Error(
        ErrorKind::kEnvironment,
        "libcurl.so.4 is not installed; it is required to send data to trackers",
        "install it (Debian: apt-get install libcurl4), or remove mlflow from training.report_to "
        "and leave monitor.otlp empty");
  }
  return *library;
}

size_t take_body(const char* bytes, size_t size, size_t count, void* into) {
  auto& body = *static_cast<std::string*>(into);
  if (body.size() + size * count > kLongestReply) {
    return 0;
  }
  body.append(bytes, size * count);
  return size * count;
}

int is_cancelled(
    void* flag, curl_off_t /*all*/, curl_off_t /*got*/, curl_off_t /*all_out*/, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0;
}

/// Returns scheme, host and port of a URL. Other parts may contain secrets.
std::string host_of_url(const std::string& url) {
  const size_t begin = url.find("://");
  const size_t end = url.find_first_of("/?#", begin == std::string::npos ? 0 : begin + 3);
  const std::string host = url.substr(0, end);
  const size_t at = host.rfind('@');
  return at == std::string::npos ? host : host.substr(0, begin + 3) + host.substr(at + 1);
}

}  // namespace

HttpClient::HttpClient() : handle_(curl().curl_easy_init()) {
  if (handle_ == nullptr) {
    throw Error(ErrorKind::kEnvironment, "libcurl failed to initialize");
  }
}

HttpClient::~HttpClient() {
  curl().curl_easy_cleanup(handle_);
}

void HttpClient::set_user(const std::string& name, const std::string& password) {
  curl().curl_easy_setopt(handle_, CURLOPT_USERNAME, name.c_str());
  curl().curl_easy_setopt(handle_, CURLOPT_PASSWORD, password.c_str());
}

void HttpClient::set_certificates(const std::string& file) {
  if (!file.empty()) {
    curl().curl_easy_setopt(handle_, CURLOPT_CAINFO, file.c_str());
  }
}

HttpReply HttpClient::send(const std::string& url, const std::string& body) {
  const CurlLibrary& library = curl();
  HttpReply reply;
  const auto set = [&](CURLoption option, auto value) {
    library.curl_easy_setopt(handle_, option, value);
  };
  curl_slist* lines = nullptr;
  for (const std::string& line : headers_) {
    lines = library.curl_slist_append(lines, line.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(library.curl_slist_free_all)> headers(
      lines, library.curl_slist_free_all);
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);  // required in a multi-threaded process
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_TIMEOUT, kSeconds);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&reply.body));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &is_cancelled);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&cancelled_));
  set(CURLOPT_HTTPGET, 1L);
  if (!body.empty()) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(CURLOPT_POSTFIELDS, body.data());
    set(CURLOPT_POST, 1L);
  }
  if (const CURLcode code = library.curl_easy_perform(handle_); code != CURLE_OK) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("{} does not answer: {}", host_of_url(url), library.curl_easy_strerror(code)));
  }
  long status = 0;
  library.curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  return reply;
}

std::string HttpClient::escaped(const std::string& text) const {
  const CurlLibrary& library = curl();
  const std::unique_ptr<char, decltype(library.curl_free)> made(
      library.curl_easy_escape(handle_, text.data(), static_cast<int>(text.size())),
      library.curl_free);
  return made == nullptr ? "" : made.get();
}

bool is_http_address(const std::string& text) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (text.starts_with(scheme) && text.size() > scheme.size()) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::monitor
