// Tests of the store that rank 0 hosts if no agent does.
#include "comm/store.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "launch/other_user.h"
#include "launch/system/job_store.h"
#include "launch/system/network.h"
#include "launch/system/store_protocol.h"

namespace lockstep::comm {
namespace store_test {

using launch::testing::kNobody;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a port that is currently free.
int free_port() {
  return launch::bound_port(launch::listen_on("127.0.0.1", 0));
}

bool connects(const std::string& address, int port) {
  return launch::connect_within(address, port, std::chrono::seconds(10)).error.empty();
}

bool answers(int port) {
  const launch::Connecting client =
      launch::connect_within("127.0.0.1", port, std::chrono::seconds(10));
  const std::string question = launch::StoreProtocol::greeting_and_ping(1);
  ::send(client.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
  pollfd poll{client.socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&poll, 1, 20000) == 1 && ::recv(client.socket.get(), &byte, 1, 0) == 1;
}

// Returns the message of the Error (environment) that the call throws.
std::string refused(const Rendezvous& rendezvous) {
  try {
    join_store(rendezvous);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    return error.message();
  }
  return "";
}

TEST(Store, IsHostedByRankZeroOnTheNamedAddressAlone) {
  Rendezvous rendezvous{.port = free_port(), .rank = 0, .size = 2};
  const Store hosted = join_store(rendezvous);
  rendezvous.rank = 1;
  join_store(rendezvous)->set("key", "value");
  EXPECT_EQ(hosted->get_to_str("key"), "value");
  EXPECT_TRUE(connects("127.0.0.1", rendezvous.port));
  // Another loopback address acts as another network interface.
  EXPECT_FALSE(connects("127.0.0.2", rendezvous.port));
}

TEST(Store, LivesWhileACloneDoes) {
  const Rendezvous rendezvous{.port = free_port(), .rank = 0, .size = 2};
  Store hosted = join_store(rendezvous);
  const Store clone = hosted->clone();
  hosted.reset();
  EXPECT_EQ(clone->add("number", 1), 1);
}

TEST(Store, TellsWhyItCannotBeHosted) {
  Rendezvous rendezvous{.port = free_port(), .rank = 0, .size = 2};
  const Store hosted = join_store(rendezvous);
  EXPECT_THAT(
      refused(rendezvous),
      AllOf(
          HasSubstr(
              "MASTER_ADDR=127.0.0.1, lo (127.0.0.1), MASTER_PORT=" +
              std::to_string(rendezvous.port)),
          HasSubstr("is in use by PID")));
  // An address that is reserved for documentation (RFC 5737), so no machine's own.
  rendezvous.address = "192.0.2.1";
  rendezvous.port = free_port();
  EXPECT_THAT(
      refused(rendezvous),
      AllOf(HasSubstr("192.0.2.1"), HasSubstr("Cannot assign requested address")));
  EXPECT_FALSE(connects("127.0.0.1", rendezvous.port));
}

TEST(Store, TellsWhereNoStoreAnswers) {
  Rendezvous rendezvous{.port = 1, .rank = 1, .size = 2};
  rendezvous.timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(refused(rendezvous), HasSubstr("127.0.0.1:1"));
}

class OtherUsersStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = launch::testing::no_other_user(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

TEST_F(OtherUsersStore, IsNotJoined) {
  const auto foreign = std::async(std::launch::async, [] {
                         launch::testing::own_sockets_as(kNobody);
                         return std::make_unique<launch::JobStore>();
                       }).get();
  ASSERT_TRUE(answers(foreign->port()));
  EXPECT_THAT(
      refused({.port = foreign->port(), .rank = 1, .size = 2}),
      AllOf(
          HasSubstr("port " + std::to_string(foreign->port())),
          HasSubstr("belongs to " + launch::user_name(kNobody))));
}

TEST_F(OtherUsersStore, RankZerosStoreAnswersNoOtherUser) {
  const Rendezvous rendezvous{.port = free_port(), .rank = 0, .size = 2};
  const Store hosted = join_store(rendezvous);
  EXPECT_TRUE(answers(rendezvous.port));
  EXPECT_FALSE(std::async(std::launch::async, [&] {
                 launch::testing::own_sockets_as(kNobody);
                 return answers(rendezvous.port);
               }).get());
}

}  // namespace store_test
}  // namespace lockstep::comm
