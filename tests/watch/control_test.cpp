// Tests of the control socket.
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "temporary_folder.h"
#include "watch/control/server.h"

namespace lockstep::watch {
namespace control_test {

using json = nlohmann::ordered_json;

/// Waits for the next command that the server receives.
Asked next(ControlServer& server) {
  for (;;) {
    std::vector<Asked> asked = server.take();
    if (!asked.empty()) {
      return std::move(asked.front());
    }
    std::this_thread::yield();
  }
}

TEST(Control, StatusIsAnsweredAtOnceAndActsWhenTheyAreDone) {
  const TemporaryFolder folder;
  ControlServer server(folder.path(), [](const Act&) {});
  server.publish({{"step", 7}});
  const json status = ask_run(folder.path(), {{"act", "status"}});
  EXPECT_EQ(status.at("step"), 7);
  EXPECT_GE(status.at("age_s").get<double>(), 0);
  json answer;
  std::jthread client([&] {
    answer = ask_run(folder.path(), {{"act", "set"}, {"learning_rate", 0.25}, {"force", true}});
  });
  Asked asked = next(server);
  EXPECT_EQ(asked.act.kind, Act::Kind::kSet);
  EXPECT_EQ(asked.act.learning_rate, 0.25);
  asked.answer(true, "set");
  client.join();
  EXPECT_EQ(answer.at("text"), "set");
  EXPECT_TRUE(answer.at("ok").get<bool>());
  EXPECT_TRUE(server.take().empty());
}

TEST(Control, WhatCannotBeDoneIsRefusedAtOnce) {
  const TemporaryFolder folder;
  ControlServer server(folder.path(), [](const Act& act) {
    if (act.kind == Act::Kind::kEvaluate) {
      throw Error(ErrorKind::kConfig, "nothing to evaluate on");
    }
  });
  for (const auto& [request, reason] : std::vector<std::pair<json, std::string>>{
           {{{"act", "eval"}}, "nothing to evaluate on"},
           {{{"act", "sav"}}, "Did you mean 'save'?"},
           {{{"act", "set"}, {"learning_rate", 0.1}}, "--force"},
           {{{"act", "set"}, {"learning_rate", -1}, {"force", true}}, "not negative"},
           {{{"act", "set"}, {"learning_rate", "fast"}, {"force", true}}, "NUMBER"},
           {{{"act", "set"}, {"logging_steps", 0}}, "1 or more"},
           {{{"act", "set"}, {"logging_steps", 0.5}}, "a whole number"},
           {{{"act", "log"}, {"level", "loud"}}, "debug, info, warning, error"},
           {{{"act", "trace"}, {"steps", 0}}, "1 to 100"},
           {{{"act", 5}}, "invalid request"},
           {json::array({1}), "one line, a JSON object"}}) {
    const json answer = ask_run(folder.path(), request);
    EXPECT_FALSE(answer.at("ok").get<bool>()) << request;
    EXPECT_NE(answer.at("text").get<std::string>().find(reason), std::string::npos) << answer;
  }
  EXPECT_TRUE(server.take().empty());
}

TEST(Control, TheSocketIsItsUsersAloneAndGoesWithTheRun) {
  const TemporaryFolder folder;
  const auto path = folder.path() / kControlName;
  std::ofstream(path) << "left by a run that was killed";
  {
    const ControlServer server(folder.path(), [](const Act&) {});
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THROW(ask_run(folder.path(), {{"act", "status"}}), Error);
  EXPECT_THROW(ask_run(folder.path() / "nowhere", {{"act", "status"}}), Error);
  EXPECT_THROW(ControlServer(folder.path() / "nowhere", [](const Act&) {}), Error);
}

TEST(Control, AnActThatIsDroppedIsToldByTheEnd) {
  const TemporaryFolder folder;
  auto server = std::make_unique<ControlServer>(folder.path(), [](const Act&) {});
  std::string told;
  std::jthread client([&] {
    try {
      ask_run(folder.path(), {{"act", "save"}});
    } catch (const Error& error) {
      told = error.what();
    }
  });
  {
    const Asked asked = next(*server);
  }
  client.join();
  EXPECT_NE(told.find("ended before it answered"), std::string::npos) << told;
}

TEST(Control, AFolderOfALongNameIsReachedToo) {
  const TemporaryFolder folder;
  const auto deep = folder.path() / std::string(120, 'a') / std::string(120, 'b');
  std::filesystem::create_directories(deep);
  ControlServer server(deep, [](const Act&) {});
  EXPECT_TRUE(ask_run(deep, {{"act", "status"}}).at("ok").get<bool>());
}

/// Sends raw bytes and closes the connection.
void send_raw(const std::filesystem::path& folder, const std::string& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / kControlName).string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int connection = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  ::close(connection);
}

TEST(Control, HostileRequestsDoNotEndIt) {
  const TemporaryFolder folder;
  ControlServer server(folder.path(), [](const Act&) {});
  send_raw(folder.path(), "");
  send_raw(folder.path(), std::string(3000, '['));
  send_raw(folder.path(), "{\"act\": " + std::string(1000, '[') + std::string(1000, ']') + "}\n");
  send_raw(folder.path(), "{\"act\": \"save");
  send_raw(folder.path(), std::string("\0\xff\xfe\n", 4));
  EXPECT_TRUE(ask_run(folder.path(), {{"act", "status"}}).at("ok").get<bool>());
  EXPECT_TRUE(server.take().empty());
}

}  // namespace control_test
}  // namespace lockstep::watch
