// Tests of the server side of c10d's TCPStore protocol.
#include "launch/system/store_protocol.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace store_protocol_test {

constexpr uint8_t kSet = 1, kGet = 3, kAdd = 4, kWait = 6, kDelete = 8, kAppend = 9, kMultiGet = 10,
                  kCancelWait = 12, kPing = 13, kQueuePush = 14, kQueuePop = 15;
constexpr int kRequests = 18;

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string text(const std::string& content) {
  return raw<uint64_t>(content.size()) + content;
}

std::string request(uint8_t kind, const std::string& rest = "") {
  return static_cast<char>(kind) + rest;
}

const std::string kGreeting = request(0, raw<uint32_t>(0x3C85F7CE));

using Progress = StoreProtocol::Progress;

// The protocol, with the bytes sent to each client.
struct Exchange {
  std::map<StoreProtocol::Client, std::string> sent;
  uint64_t most_held = StoreProtocol::kMostHeld;
  bool reads = true;  // clients read their answers at once
  StoreProtocol protocol{
      [this](StoreProtocol::Client client, const std::string& answer) {
        sent[client] += answer;
        return reads;
      },
      most_held};
  std::string take(StoreProtocol::Client client, const std::string& bytes) {
    Progress progress = protocol.take(client, bytes);
    while (progress == Progress::kHasRequests) {
      progress = protocol.take(client, "");
    }
    EXPECT_EQ(progress, Progress::kNeedsBytes);
    return std::move(sent[client]);
  }
  bool refuses(StoreProtocol::Client client, const std::string& bytes) {
    return protocol.take(client, bytes) == Progress::kRefused;
  }
};

TEST(StoreProtocol, AnswersWhereverTheBytesAreCut) {
  const std::string whole = kGreeting + request(kPing, raw<uint32_t>(7)) +
                            request(kSet, text("key") + text("value")) +
                            request(kGet, text("key")) + request(kAdd, text("n") + raw<int64_t>(3));
  const std::string answers = raw<uint32_t>(7) + text("value") + raw<int64_t>(3);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    Exchange exchange;
    std::string answer = exchange.take(1, whole.substr(0, cut));
    answer += exchange.take(1, whole.substr(cut));
    EXPECT_EQ(answer, answers) << cut;
  }
}

TEST(StoreProtocol, RefusesStrangersAndSizesBeforeKeepingAnything) {
  Exchange exchange;
  EXPECT_TRUE(exchange.refuses(1, "GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(exchange.refuses(2, request(0, raw<uint32_t>(1))));
  for (const std::string& bad :
       {request(kGet, raw<uint64_t>(StoreProtocol::kLongestKey + 1)),
        request(kSet, text("key") + raw<uint64_t>(StoreProtocol::kLongestValue + 1)),
        request(kWait, raw<uint64_t>(StoreProtocol::kMostKeys + 1)),
        request(kRequests)}) {
    exchange.take(3, kGreeting);
    EXPECT_TRUE(exchange.refuses(3, bad));
  }
}

TEST(StoreProtocol, ProcessesABoundedNumberOfRequestsAtOnce) {
  constexpr size_t kPings = 10 * StoreProtocol::kMostRequests;
  std::string pings, answers;
  for (uint32_t i = 0; i < kPings; ++i) {
    pings += request(kPing, raw(i));
    answers += raw(i);
  }
  Exchange exchange;
  exchange.take(1, kGreeting);
  EXPECT_EQ(exchange.protocol.take(1, pings), Progress::kHasRequests);
  EXPECT_LE(exchange.sent[1].size(), StoreProtocol::kMostRequests * sizeof(uint32_t));
  EXPECT_EQ(exchange.take(1, ""), answers);
}

TEST(StoreProtocol, ProcessesNothingMoreForAClientThatMustRead) {
  Exchange exchange{.sent = {}, .reads = false};
  exchange.take(1, kGreeting);
  std::string pings;
  for (uint32_t i = 0; i < 3; ++i) {
    pings += request(kPing, raw(i));
  }
  EXPECT_EQ(exchange.protocol.take(1, pings), Progress::kHasRequests);
  EXPECT_EQ(exchange.sent[1], raw<uint32_t>(0));
  EXPECT_EQ(exchange.protocol.take(1, ""), Progress::kHasRequests);
  EXPECT_EQ(exchange.sent[1], raw<uint32_t>(0) + raw<uint32_t>(1));
}

TEST(StoreProtocol, AQueueWakesOneAKeyWakesAll) {
  Exchange exchange;
  const std::string stop(1, '\0');
  for (const StoreProtocol::Client client : {1, 2, 3}) {
    exchange.take(client, kGreeting);
  }
  for (const StoreProtocol::Client client : {1, 2}) {
    EXPECT_EQ(exchange.take(client, request(kWait, raw<uint64_t>(1) + text("x"))), "");
  }
  exchange.take(3, request(kQueuePush, text("x") + text("1")));
  EXPECT_EQ(exchange.sent[1], stop);
  EXPECT_EQ(exchange.sent[2], "");
  exchange.take(3, request(kSet, text("x") + text("1")));
  EXPECT_EQ(exchange.sent[1], stop);
  EXPECT_EQ(exchange.sent[2], stop);
}

TEST(StoreProtocol, AClientThatLeavesIsNotWoken) {
  Exchange exchange;
  exchange.take(1, kGreeting + request(kWait, raw<uint64_t>(2) + text("x") + text("y")));
  exchange.protocol.forget(1);
  exchange.take(2, kGreeting + request(kSet, text("x") + text("")));
  exchange.take(2, request(kSet, text("y") + text("")));
  EXPECT_EQ(exchange.sent[1], "");
}

TEST(StoreProtocol, HoldsNoMoreThanItMay) {
  const uint64_t half = uint64_t{1} << 20;
  Exchange exchange{.sent = {}, .most_held = 2 * half};
  for (const StoreProtocol::Client client : {1, 2, 3, 4, 5}) {
    exchange.take(client, kGreeting);
  }
  exchange.take(1, request(kSet, text("large") + text(std::string(half - 4096, 'x'))));
  const uint64_t before = exchange.protocol.held();
  // Values, queues, incomplete requests and awaited keys all count towards the limit.
  EXPECT_TRUE(
      exchange.refuses(2, request(kSet, text("more") + text(std::string(half - 4096, 'x')))));
  EXPECT_TRUE(
      exchange.refuses(3, request(kQueuePush, text("more") + text(std::string(half - 4096, 'x')))));
  EXPECT_TRUE(exchange.refuses(4, std::string(half + 4096, 'x')));
  EXPECT_EQ(exchange.protocol.held(), before);
  // One value repeated in a single request counts towards the length of the answer.
  std::string many = raw<uint64_t>(8);
  for (int i = 0; i < 8; ++i) {
    many += text("large");
  }
  EXPECT_TRUE(exchange.refuses(5, request(kMultiGet, many)));
  EXPECT_EQ(exchange.take(1, request(kAdd, text("n") + raw<int64_t>(1))), raw<int64_t>(1));
}

// The number of stored bytes stays correct: after everything is deleted, it is 0.
TEST(StoreProtocol, CountsWhatItHolds) {
  Exchange exchange;
  exchange.take(1, kGreeting);
  exchange.take(2, kGreeting);
  for (int round = 0; round < 3; ++round) {
    exchange.take(1, request(kSet, text("key") + text("value")));
    exchange.take(1, request(kSet, text("key") + text("")));
    exchange.take(1, request(kAppend, text("key") + text("longer")));
    exchange.take(1, request(kAdd, text("n") + raw<int64_t>(100)));
    exchange.take(1, request(kQueuePush, text("queue") + text("element")));
    exchange.take(2, request(kWait, raw<uint64_t>(2) + text("a") + text("b")));
    exchange.take(1, request(kSet, text("a") + text("")));
    exchange.take(2, request(kWait, raw<uint64_t>(1) + text("c")));
    EXPECT_GT(exchange.protocol.held(), 0U);
    exchange.take(1, request(kQueuePop, text("queue")));
    for (const char* key : {"key", "n", "a"}) {
      exchange.take(1, request(kDelete, text(key)));
    }
    exchange.take(2, request(kCancelWait));
    EXPECT_EQ(exchange.protocol.held(), 0U);
  }
}

// Random, often invalid requests of every kind, cut anywhere: each is answered or refused.
TEST(StoreProtocol, BearsRandomRequests) {
  std::mt19937 random(20240607);
  const auto below = [&](uint32_t most) { return static_cast<uint32_t>(random() % most); };
  Exchange exchange;
  std::vector<bool> greeted(8, false);
  for (int i = 0; i < 200'000; ++i) {
    const StoreProtocol::Client client = below(8);
    std::string bytes = greeted[client] ? "" : kGreeting;
    bytes += request(static_cast<uint8_t>(below(kRequests + 1)));
    const uint32_t parts = below(4);
    for (uint32_t part = 0; part < parts; ++part) {
      bytes += below(3) == 0 ? raw<uint64_t>(below(5)) : text(std::string(below(4), 'a'));
    }
    if (below(8) == 0) {
      bytes[below(static_cast<uint32_t>(bytes.size()))] = static_cast<char>(random());
    }
    greeted[client] = !exchange.refuses(client, bytes.substr(0, below(64)));
    if (below(100) == 0) {
      exchange.protocol.forget(client);
      greeted[client] = false;
    }
    exchange.sent.clear();
  }
}

}  // namespace store_protocol_test
}  // namespace lockstep::launch
