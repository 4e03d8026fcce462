// Tests of the HTTP client: requests, error messages, and secrets that errors must not contain.
#include "monitor/http_client.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "monitor/one_server.h"

namespace lockstep::monitor {
namespace http_client_test {

/// Returns the error of a request without an answer.
Error error_of(HttpClient& client, const std::string& url) {
  try {
    client.send(url, "");
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::kInternal, "it was answered"};
}

TEST(HttpClient, GetsWithoutABodyAndPostsJsonWithOne) {
  OneServer server([](const OneServer::Request& request) {
    return OneServer::Reply{request.body.empty() ? 200 : 201, "[" + request.body + "]"};
  });
  HttpClient client;
  client.add_header("Authorization: Bearer abc");
  const HttpReply got = client.send(server.address() + "/a?b=1", "");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "[]");
  const HttpReply posted = client.send(server.address() + "/c", R"({"x": 1})");
  EXPECT_EQ(posted.status, 201);
  EXPECT_EQ(posted.body, R"([{"x": 1}])");
  EXPECT_EQ(client.send(server.address() + "/d", "").body, "[]") << "a GET after a POST is one";
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].line, "GET /a?b=1 HTTP/1.1");
  EXPECT_EQ(requests[1].line, "POST /c HTTP/1.1");
  EXPECT_EQ(requests[2].line, "GET /d HTTP/1.1");
  for (const OneServer::Request& request : requests) {
    EXPECT_TRUE(request.has("Authorization: Bearer abc")) << request.headers;
  }
  EXPECT_TRUE(requests[1].has("Content-Type: application/json")) << requests[1].headers;
}

TEST(HttpClient, SendsABodyOfMegabytesWhole) {
  OneServer server;
  HttpClient client;
  const std::string body = "\"" + std::string(3 << 20, 'x') + "\"";
  EXPECT_EQ(client.send(server.address(), body).status, 200);
  EXPECT_EQ(server.requests().at(0).body, body);
}

TEST(HttpClient, TellsItsUserAsHttpDoes) {
  OneServer server;
  HttpClient client;
  client.set_user("ann", "pass:word");
  client.send(server.address(), "");
  EXPECT_TRUE(server.requests().at(0).has("Authorization: Basic YW5uOnBhc3M6d29yZA=="))
      << server.requests().at(0).headers;
}

TEST(HttpClient, DoesNotFollowARedirectWithItsToken) {
  OneServer other;
  OneServer server([&](const OneServer::Request&) {
    return OneServer::Reply{302, "", "Location: " + other.address() + "/elsewhere"};
  });
  HttpClient client;
  client.add_header("Authorization: Bearer abc");
  EXPECT_EQ(client.send(server.address(), "{}").status, 302);
  EXPECT_TRUE(other.requests().empty());
}

TEST(HttpClient, AnErrorNamesTheHostAndNothingSecret) {
  const std::string nobody = nobodys_address(), host = nobody.substr(7);
  HttpClient client;
  for (const char* rest :
       {"/path?token=SECRET", "?token=SECRET", "#SECRET", "/SECRET", "?a=/SECRET"}) {
    const Error error = error_of(client, nobody + rest);
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_TRUE(error.message().starts_with(nobody + " does not answer: ")) << error.message();
    EXPECT_EQ(error.message().find("SECRET"), std::string::npos) << error.message();
  }
  const Error error = error_of(client, "http://ann:SECRET@" + host + "/path");
  EXPECT_TRUE(error.message().starts_with(nobody + " does not answer: ")) << error.message();
}

TEST(HttpClient, AReplyWithoutEndIsGivenUp) {
  OneServer server(
      [](const OneServer::Request&) { return OneServer::Reply{200, std::string(2 << 20, 'x')}; });
  HttpClient client;
  EXPECT_EQ(error_of(client, server.address()).kind(), ErrorKind::kEnvironment);
}

TEST(HttpClient, ACancelledOneSendsNothingAnyMore) {
  OneServer server;
  HttpClient client;
  client.cancel();
  EXPECT_EQ(error_of(client, server.address()).kind(), ErrorKind::kEnvironment);
  EXPECT_EQ(error_of(client, server.address()).kind(), ErrorKind::kEnvironment);
}

TEST(HttpClient, EscapesAPartOfAnAddress) {
  const HttpClient client;
  EXPECT_EQ(client.escaped("a b/c&d=é"), "a%20b%2Fc%26d%3D%C3%A9");
  EXPECT_EQ(client.escaped(""), "");
}

TEST(HttpClient, KnowsWhatAnAddressIs) {
  for (const char* text : {"http://a", "https://a:1/b"}) {
    EXPECT_TRUE(is_http_address(text)) << text;
  }
  for (const char* text : {"", "http://", "https://", "http:/a", "a:1", "file:///a", " http://a"}) {
    EXPECT_FALSE(is_http_address(text)) << text;
  }
}

}  // namespace http_client_test
}  // namespace lockstep::monitor
