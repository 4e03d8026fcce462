// Tests of the time measured for slow links.
#include "comm/moving.h"

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::comm {
namespace moving_test {

/// Returns the two ends of a loopback connection.
std::array<int, 2> connected() {
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int listens = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::bind(listens, any, size), 0);
  EXPECT_EQ(::listen(listens, 1), 0);
  EXPECT_EQ(::getsockname(listens, any, &size), 0);
  const int first = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(first, any, size), 0);
  const int second = ::accept(listens, nullptr, nullptr);
  ::close(listens);
  return {first, second};
}

TEST(Moving, WhoseReaderHasNoRoomIsNotHeldUpByItsLink) {
  std::array<int, 2> ends{};
  watch_sockets_of([&] { ends = connected(); });
  const std::vector<char> bytes(1 << 20);
  while (::send(ends[0], bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const double before = seconds_moving();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_LT(seconds_moving() - before, 0.3);
  for (const int end : ends) {
    ::close(end);
  }
}

}  // namespace moving_test
}  // namespace lockstep::comm
