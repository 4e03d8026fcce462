// Tests of the web page of runs and its HTTP server.
#include "watch/page/page.h"

#include <fstream>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "temporary_folder.h"

namespace lockstep::watch {
namespace page_test {

class Page : public testing::Test {
 protected:
  Page() {
    std::ofstream metrics(folder_.path() / "metrics.jsonl");
    for (int step = 1; step <= 5000; ++step) {
      metrics << fmt::format(
          "{{\"step\": {}, \"loss\": {}.5, \"odd \\\"name\": 1}}\n", step, step % 7);
    }
    metrics << "{\"step\": 5001, \"lo";  // incomplete line of an active run
    metrics.close();
    std::ofstream(folder_.path() / "config.yaml") << "training:\n  seed: 3\n  learning_rate: 0.1\n";
    std::ofstream(folder_.path() / "events.jsonl")
        << "{\"time\": 5, \"step\": 0, \"event\": \"began\", \"origins\": {\"training.seed\": "
           "\"command line: seed=3\"}}\n";
    std::filesystem::create_directories(folder_.path() / "checkpoint-10");
    std::filesystem::create_directories(folder_.path() / "checkpoint-10.partial");
  }
  RunsPage page(const std::string& address = "127.0.0.1") {
    return {{folder_.path()}, address, "secret"};
  }
  static HttpRequest request(
      const std::string& path,
      std::map<std::string, std::string> query = {},
      std::map<std::string, std::string> headers = {}) {
    headers.emplace("host", "127.0.0.1:8000");
    headers.emplace(
        "cookie", "other=1; lockstep-80=secret; lockstep-8000=secret; lockstep-9999=secret");
    return {path, std::move(query), std::move(headers)};
  }
  static std::string header(const HttpAnswer& answer, const std::string& name) {
    for (const auto& [each, value] : answer.headers) {
      if (each == name) {
        return value;
      }
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(Page, NothingIsToldToWhoDoesNotKnowTheToken) {
  RunsPage page = this->page();
  for (const char* const path : {"/", "/app.js", "/api/runs", "/api/series", "/metrics"}) {
    for (const char* const cookie :
         {"",
          "lockstep-8000=",
          "lockstep-8000=secre",
          "lockstep-8000=secretly",
          "xlockstep-8000=secret",
          "lockstep-8001=secret",
          ";"}) {
      EXPECT_EQ(page.answer(request(path, {}, {{"cookie", cookie}})).status, 401) << cookie;
    }
  }
  EXPECT_EQ(page.answer(request("/", {{"token", "wrong"}}, {{"cookie", ""}})).status, 401);
  const auto bearer = [&](const char* value) {
    return page.answer(request("/metrics", {}, {{"cookie", ""}, {"authorization", value}})).status;
  };
  EXPECT_EQ(bearer("Bearer secret"), 200);
  EXPECT_EQ(bearer("Bearer other"), 401);
  const HttpAnswer first = page.answer(request("/", {{"token", "secret"}}, {{"cookie", ""}}));
  EXPECT_EQ(first.status, 303);
  EXPECT_EQ(header(first, "Location"), "/");
  EXPECT_EQ(header(first, "Set-Cookie"), "lockstep-8000=secret; HttpOnly; SameSite=Strict; Path=/");
  EXPECT_NE(draw_token(), draw_token());
  EXPECT_EQ(draw_token().size(), 32U);
}

TEST_F(Page, OtherHostsAndSitesAreNotServed) {
  RunsPage page = this->page();
  const auto status = [&](const std::string& name, const std::string& value) {
    return page.answer(request("/api/runs", {}, {{name, value}})).status;
  };
  EXPECT_EQ(status("host", "evil.example:8000"), 403);
  EXPECT_EQ(status("host", ""), 403);
  EXPECT_EQ(status("host", "localhost:9999"), 200);  // an SSH tunnel may use another port
  EXPECT_EQ(status("host", "[::1]:80"), 200);
  EXPECT_EQ(status("origin", "http://127.0.0.1:8000"), 200);
  EXPECT_EQ(status("origin", "http://127.0.0.1:8001"), 403);
  EXPECT_EQ(status("origin", "null"), 403);
  EXPECT_EQ(status("sec-fetch-site", "cross-site"), 403);
  EXPECT_EQ(status("sec-fetch-site", "same-origin"), 200);
  RunsPage named = this->page("node7");
  EXPECT_EQ(named.answer(request("/api/runs", {}, {{"host", "node7:80"}})).status, 200);
}

TEST_F(Page, EveryAnswerKeepsScriptsOut) {
  RunsPage page = this->page();
  for (const char* const path : {"/", "/app.js", "/api/runs", "/nowhere"}) {
    const HttpAnswer answer = page.answer(request(path));
    const std::string policy = header(answer, "Content-Security-Policy");
    EXPECT_NE(policy.find("default-src 'none'; script-src 'self';"), std::string::npos) << path;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(header(answer, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(header(answer, "Cache-Control"), "no-store");
  }
  const std::string index(page_file("index.html"));
  EXPECT_NE(index.find("<script src=\"app.js\" defer></script>"), std::string::npos);
  EXPECT_EQ(index.find("style="), std::string::npos);  // the content security policy would block it
  for (const char* const name : {"index.html", "app.js", "app.css"}) {
    EXPECT_EQ(page_file(name).find("https://"), std::string::npos) << name;
  }
  EXPECT_TRUE(page_file("../page.cpp").empty());
  EXPECT_EQ(page.answer(request("/../events.jsonl")).status, 404);
}

TEST_F(Page, RunsAreToldWithTheirMetrics) {
  RunsPage page = this->page();
  const auto runs = nlohmann::json::parse(page.answer(request("/api/runs")).body);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].at("last_step"), 5000);
  EXPECT_EQ(runs[0].at("end"), "ended unexpectedly");
  EXPECT_EQ(runs[0].at("metrics"), (nlohmann::json{"loss", "odd \"name"}));
  const auto run = nlohmann::json::parse(page.answer(request("/api/run", {{"id", "0"}})).body);
  EXPECT_EQ(run.at("checkpoints"), nlohmann::json{10});
  EXPECT_EQ(
      run.at("configuration"),
      (nlohmann::json{
          {"training.learning_rate", "0.1", "default"},
          {"training.seed", "3", "command line: seed=3"}}));
  for (const char* const id : {"1", "-1", "x", "", "99999999999999999999"}) {
    EXPECT_EQ(page.answer(request("/api/run", {{"id", id}})).status, 404) << id;
  }
}

TEST_F(Page, SeriesComeInAsManyPointsAsAreAskedFor) {
  RunsPage page = this->page();
  const auto ask = [&](std::map<std::string, std::string> query) {
    query.emplace("ids", "0");
    query.emplace("names", "loss,odd \"name,nothing");
    return nlohmann::json::parse(page.answer(request("/api/series", std::move(query))).body)
        .at("0");
  };
  const auto few = ask({{"points", "10"}});
  EXPECT_FALSE(few.contains("nothing"));
  EXPECT_EQ(few.at("odd \"name")[1][0], 1.0);
  EXPECT_LE(few.at("loss")[0].size(), 40U);
  EXPECT_EQ(few.at("loss")[0][0], 1);
  EXPECT_EQ(few.at("loss")[0].back(), 5000);
  const auto part = ask({{"from", "100"}, {"to", "103"}});
  EXPECT_EQ(part.at("loss")[0], (nlohmann::json{100, 101, 102, 103}));
  EXPECT_EQ(part.at("loss")[1], (nlohmann::json{2.5, 3.5, 4.5, 5.5}));
  EXPECT_EQ(ask({{"from", "x"}, {"points", "-5"}, {"smooth", "5000"}}).size(), 2U);
  std::ofstream(folder_.path() / "metrics.jsonl", std::ios::app) << "ss\": 77.0}\n";
  EXPECT_EQ(ask({{"from", "5001"}}).at("loss")[1], (nlohmann::json{77.0}));
}

TEST_F(Page, TablesForOtherPrograms) {
  RunsPage page = this->page();
  const std::string csv = page.answer(request("/api/csv", {{"id", "0"}})).body;
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "step,\"loss\",\"odd \"\"name\"");
  EXPECT_NE(csv.find("\n2,2.5,1.0\n"), std::string::npos);
  const std::string prometheus = page.answer(request("/metrics")).body;
  EXPECT_NE(prometheus.find("# TYPE lockstep_loss gauge\nlockstep_loss{run=\""), std::string::npos);
  EXPECT_NE(prometheus.find("lockstep_running{"), std::string::npos);
  EXPECT_NE(prometheus.find("lockstep_odd__name{"), std::string::npos);
  const auto same = nlohmann::json::parse(
      page.answer(request("/api/difference", {{"first", "0"}, {"second", "0"}})).body);
  EXPECT_EQ(same.at("common_losses"), 5000);
}

TEST(PageWithoutRuns, AnEmptyFolderHasNoRunsYetAndAMissingOneIsAnError) {
  const TemporaryFolder folder;
  RunsPage page({folder.path()}, "127.0.0.1", "t");
  const HttpRequest request{"/api/runs", {}, {{"host", "localhost"}, {"cookie", "lockstep-80=t"}}};
  EXPECT_EQ(page.answer(request).body, "[]");
  EXPECT_THROW(RunsPage({folder.path() / "no"}, "127.0.0.1", "t"), Error);
}

/// Sends bytes to a server at `port` and returns its complete answer.
std::string talk(int port, const std::string& bytes) {
  sockaddr_in address{
      .sin_family = AF_INET,
      .sin_port = htons(static_cast<uint16_t>(port)),
      .sin_addr = {},
      .sin_zero = {}};
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  (void)::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = ::recv(connection, part.data(), part.size(), 0)) > 0;) {
    text.append(part.data(), static_cast<size_t>(count));
  }
  ::close(connection);
  return text;
}

TEST(Http, RequestsAreParsedStrictly) {
  HttpRequest request;
  EXPECT_EQ(
      parse_request(
          "GET /a%20b?x=1%2B1&y&x=c+d HTTP/1.1\r\nHost:  h \r\nX-Y: a:b\r\n\r\n", request),
      0);
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.parameter("x"), "c d");
  EXPECT_EQ(request.parameter("y", "z"), "");
  EXPECT_EQ(request.parameter("w", "z"), "z");
  EXPECT_EQ(request.header("host"), "h");
  EXPECT_EQ(request.header("x-y"), "a:b");
  for (const auto& [text, status] : std::vector<std::pair<std::string, int>>{
           {"POST / HTTP/1.1\r\n\r\n", 405},
           {"GET / HTTP/2\r\n\r\n", 400},
           {"GET /\r\n\r\n", 400},
           {"GET  HTTP/1.1\r\n\r\n", 400},
           {"GET http://x/ HTTP/1.1\r\n\r\n", 400},
           {"GET /%zz HTTP/1.1\r\n\r\n", 400},
           {"GET /?a=%4 HTTP/1.1\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
           {"\r\n\r\n", 400},
           {"", 400}}) {
    HttpRequest each;
    EXPECT_EQ(parse_request(text, each), status) << text;
  }
}

TEST(Http, AServerAnswersWholeAndLargeAndHostileRequests) {
  HttpServer server("127.0.0.1", 0, [](const HttpRequest& request) -> HttpAnswer {
    if (request.path == "/fails") {
      throw Error(ErrorKind::kData, "it failed");
    }
    return {.body = std::string(request.path == "/large" ? 5 << 20 : 3, 'x')};
  });
  std::jthread thread([&] { server.run(); });
  const int port = server.port();
  const std::string small = talk(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(small.starts_with("HTTP/1.1 200 OK\r\n")) << small;
  EXPECT_TRUE(small.ends_with("\r\n\r\nxxx")) << small;
  EXPECT_GT(talk(port, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").size(), size_t{5} << 20);
  EXPECT_NE(talk(port, "GET /fails HTTP/1.1\r\n\r\n").find(" 500 "), std::string::npos);
  EXPECT_NE(talk(port, "DELETE / HTTP/1.1\r\n\r\n").find(" 405 "), std::string::npos);
  EXPECT_NE(talk(port, std::string(17000, 'a')).find(" 431 "), std::string::npos);
  EXPECT_NE(talk(port, std::string("\0\0\r\n\r\n", 6)).find(" 400 "), std::string::npos);
  EXPECT_THROW(HttpServer("127.0.0.1", port, nullptr), Error);
  EXPECT_THROW(HttpServer("no such host.invalid", 0, nullptr), Error);
  server.stop();
}

/// A client that has sent `text` and waits.
class Client {
 public:
  Client(int port, const std::string& text) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    send(text);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  void send(const std::string& text) const {
    [[maybe_unused]] const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// True if the server closes the connection within some milliseconds.
  bool is_closed_within(int milliseconds) const {
    pollfd watched{socket_, POLLIN, 0};
    return ::poll(&watched, 1, milliseconds) > 0;
  }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

TEST(Http, IdleClientsKeepNobodyOut) {
  HttpServer server("127.0.0.1", 0, [](const HttpRequest&) -> HttpAnswer { return {.body = "x"}; });
  const std::jthread thread([&] { server.run(); });
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 80; ++i) {
    idle.push_back(std::make_unique<Client>(server.port(), "GET"));
  }
  const std::string answer = talk(server.port(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(idle.front()->is_closed_within(10000));
  EXPECT_FALSE(idle.back()->is_closed_within(0));
  server.stop();
}

TEST(Http, ASlowRequestIsDroppedAfterAFixedTime) {
  const double patience = 0.3;
  HttpServer server(
      "127.0.0.1", 0, [](const HttpRequest&) -> HttpAnswer { return {.body = "x"}; }, patience);
  const std::jthread thread([&] { server.run(); });
  const Client slow(server.port(), "GET / HTTP/1.1\r\nA: ");
  int bytes = 0;
  while (bytes < 1000 && !slow.is_closed_within(20)) {
    slow.send("a");
    ++bytes;
  }
  EXPECT_LT(bytes, 1000);
  server.stop();
}

}  // namespace page_test
}  // namespace lockstep::watch
