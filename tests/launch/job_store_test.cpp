// Tests of the job store over sockets.
#include "launch/system/job_store.h"

#include <chrono>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "launch/helpers.h"
#include "launch/system/network.h"
#include "launch/system/store_protocol.h"

namespace lockstep::launch {
namespace job_store_test {

using ::testing::HasSubstr;

bool answers(const std::string& address, int port) {
  const Connecting client = connect_within(address, port, std::chrono::seconds(10));
  const std::string question = StoreProtocol::greeting_and_ping(1);
  ::send(client.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
  pollfd poll{client.socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&poll, 1, 20000) == 1 && ::recv(client.socket.get(), &byte, 1, 0) == 1;
}

bool answers(const JobStore& store) {
  return answers("127.0.0.1", store.port());
}

// Pings the store at ADDRESS PORT as USER; exits with 0 if it answers.
const testing::RegisterPart ask_store("ask-store", [](int, char** argv) {
  const auto user = static_cast<uid_t>(std::stoi(argv[2]));
  if (::setresuid(user, user, user) != 0) {
    return 99;
  }
  return answers(argv[0], std::stoi(argv[1])) ? 0 : 1;
});

TEST(JobStore, CutsOffWhatIsNoClient) {
  const JobStore store;
  const Connecting stranger = connect_within("127.0.0.1", store.port(), std::chrono::seconds(5));
  ASSERT_EQ(stranger.error, "");
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(::send(stranger.socket.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  pollfd poll{stranger.socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&poll, 1, 20000), 1);
  char byte = 0;
  EXPECT_LE(::recv(stranger.socket.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(answers(store));
}

TEST(JobStore, ServesItsOwnUserAlone) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can act as another user";
  }
  const JobStore store;
  const auto code_as = [&](const char* user) {
    return testing::run(
               testing::part("ask-store", {"127.0.0.1", std::to_string(store.port()), user}))
        .status.shell_code();
  };
  if (code_as("65534") == 99) {
    GTEST_SKIP() << "no other user on this machine";
  }
  EXPECT_EQ(code_as("0"), 0);
  EXPECT_EQ(code_as("65534"), 1);
  EXPECT_TRUE(answers(store));
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(const std::string& content) {
  return raw<uint64_t>(content.size()) + content;
}

// A client that has sent its greeting.
class Client {
 public:
  explicit Client(const JobStore& store)
      : socket_(connect_within("127.0.0.1", store.port(), std::chrono::seconds(10)).socket) {
    ::fcntl(socket_.get(), F_SETFL, 0);  // blocking
    const timeval patience{60, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    send(StoreProtocol::greeting_and_ping(1));
    read(sizeof(uint32_t));
  }

  void send(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t size =
          ::send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      ASSERT_GT(size, 0);
      done += static_cast<size_t>(size);
    }
  }
  /// Reads up to `most` bytes, or until the store disconnects. Returns the number of bytes.
  size_t read(size_t most) {
    std::vector<char> buffer(size_t{1} << 20);
    size_t done = 0;
    ssize_t size = 0;
    while (done < most &&
           (size = ::recv(socket_.get(), buffer.data(), std::min(most - done, buffer.size()), 0)) >
               0) {
      done += static_cast<size_t>(size);
    }
    return done;
  }
  bool has_answer() {
    pollfd poll{socket_.get(), POLLIN, 0};
    return ::poll(&poll, 1, 20000) == 1;
  }
  bool check(const std::string& key) {
    send(std::string(1, '\x05') + raw<uint64_t>(1) + text(key));
    char answer = 1;
    EXPECT_EQ(::recv(socket_.get(), &answer, 1, 0), 1);
    return answer == 0;
  }

 private:
  Socket socket_;
};

std::string set(const std::string& key, const std::string& value) {
  return '\x01' + text(key) + text(value);
}

std::string get(const std::string& key) {
  return '\x03' + text(key);
}

TEST(JobStore, ServesOthersWhileAClientHasManyRequests) {
  constexpr size_t kValue = size_t{1} << 20, kGets = 1000;
  const JobStore store;
  Client greedy(store), honest(store);
  greedy.send(set("large", std::string(kValue, 'x')));
  std::string requests;
  for (size_t i = 0; i < kGets; ++i) {
    requests += get("large");
  }
  ASSERT_LT(requests.size(), size_t{64} << 10);  // the store can read all of them at once
  greedy.send(requests + set("last", ""));
  ASSERT_TRUE(greedy.has_answer());
  // The store has begun, and the honest client is served before it is done.
  EXPECT_FALSE(honest.check("last"));
  EXPECT_EQ(greedy.read(kGets * (kValue + sizeof(uint64_t))), kGets * (kValue + sizeof(uint64_t)));
  EXPECT_FALSE(greedy.check("none"));
  EXPECT_TRUE(honest.check("last"));
}

TEST(JobStore, DisconnectsAClientThatDoesNotReadForOneThatDoes) {
  constexpr size_t kAnswer =
      (size_t{120} << 20) + sizeof(uint64_t);  // the store keeps two of three
  const JobStore store;
  Client first(store), second(store), third(store);
  first.send(set("large", std::string(kAnswer - sizeof(uint64_t), 'x')));
  for (Client* client : {&first, &second, &third}) {
    client->send(get("large"));
    ASSERT_TRUE(client->has_answer());
  }
  EXPECT_EQ(third.read(kAnswer), kAnswer);
  EXPECT_NE(first.read(kAnswer) == kAnswer, second.read(kAnswer) == kAnswer);
}

TEST(JobStore, AThousandClientsMeet) {
  // Runs in a separate network namespace, because c10d's clients look up their own names and DNS
  // servers limit the rate of queries.
  std::vector<std::string> argv{
      "unshare",
      "--net",
      "sh",
      "-c",
      "ip link set lo up && ulimit -n 8192 || exit 99; exec \"$@\"",
      "sh"};
  argv.insert(argv.end(), {LOCKSTEP_STORE_CLIENT, "thousand"});
  const auto ran = testing::run(argv);
  if (ran.error_output.find("unshare failed") != std::string::npos ||
      ran.status.shell_code() == 99) {
    GTEST_SKIP() << "no network namespace here: " << ran.error_output;
  }
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
}

TEST(JobStore, IsReachedAtItsAddressAlone) {
  const JobStore store("127.0.0.1");
  const std::chrono::milliseconds soon(300);
  EXPECT_EQ(connect_within("127.0.0.1", store.port(), soon).error, "");
  // Another loopback address stands for another interface; the server itself listens on all.
  EXPECT_NE(connect_within("127.0.0.2", store.port(), soon).error, "");
}

TEST(JobStore, TellsWhoHasThePort) {
  const JobStore store;
  try {
    const JobStore second("127.0.0.1", store.port());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            fmt::format("port {} of 127.0.0.1 is in use by PID {}", store.port(), ::getpid())));
  }
}

}  // namespace job_store_test
}  // namespace lockstep::launch
